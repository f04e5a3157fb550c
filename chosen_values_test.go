package counterd_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd"
)

const chosenRules = `events:
  api:
    limits: [{per: ip, rate: 2/d}, {per: user, rate: 100/d}, {per: key, rate: 2/d}]
    from: {user: header X-User}
  address: {limits: [{per: ip, rate: 1/d}]}
`

// A value that a client chooses, long, empty or no text, is counted if there is one, and never ends the decision: the
// other limits hold.
func TestAValueThatAClientChooses(t *testing.T) {
	keyOf := func(r *http.Request) (string, error) { return r.Header.Get("X-Key"), nil }
	h := start(t, parse(t, chosenRules)).Middleware("api", counterd.FeatureFrom("key", keyOf))(http.NotFoundHandler())
	status := func(address, user, key string) int {
		r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
		r.RemoteAddr = address
		r.Header.Set("X-User", user)
		r.Header.Set("X-Key", key)
		return serveOnce(h, r).Code
	}
	long := strings.Repeat("x", 1025)
	for address, value := range map[string]string{"192.0.2.1:1": "", "192.0.2.2:1": long, "192.0.2.3:1": "\xff\xfe", "192.0.2.4:1": strings.Repeat("é", 600)} {
		for _, want := range []int{404, 404, 429} {
			assert.Equal(t, want, status(address, value, ""), "%.10q of %s", value, address)
		}
	}
	for _, want := range []int{404, 404, 429} {
		assert.Equal(t, want, status("@", "", long+"y"), "the long value has a counter")
	}
	assert.Equal(t, 404, status("@", "", long+"z"), "each its own")
}

// A request without an address, as over a Unix socket, is limited by its other features, and without any it is a 400.
func TestWithoutAnAddress(t *testing.T) {
	l := start(t, parse(t, chosenRules))
	user := counterd.FeatureFrom("key", func(*http.Request) (string, error) { return "k", nil })
	limited, addressed := l.Middleware("api", user)(http.NotFoundHandler()), l.Middleware("address")(http.NotFoundHandler())
	for _, peer := range []string{"@", "", "/run/app.sock"} {
		r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
		r.RemoteAddr = peer
		assert.Equal(t, 400, serveOnce(addressed, r).Code, peer)
	}
	r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
	r.RemoteAddr = "@"
	for _, want := range []int{404, 404, 429} {
		assert.Equal(t, want, serveOnce(limited, r).Code)
	}
}
