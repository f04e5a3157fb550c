package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/internal/service"
)

// newLocal returns the handlers of a server for programs of this machine alone.
func newLocal(t *testing.T) *guarded {
	g := newGuarded(t)
	g.config.Gate, g.config.LoopbackOnly = nil, true
	g.client, g.admin = newDescribed(g.config), newDescribedAdmin(g.config)
	return g
}

// Where programs of this machine alone are served, no route answers under a name that a web
// page may have, and nothing is counted.
func TestForeignHostsAreRefused(t *testing.T) {
	g := newLocal(t)
	ask := func(of asks, host string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), of.method, of.target, strings.NewReader(of.body))
		r.Host = host
		if of.body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		w := httptest.NewRecorder()
		if strings.HasPrefix(of.target, "/debug") {
			g.admin.ServeHTTP(w, r)
		} else {
			g.client.ServeHTTP(w, r)
		}
		return w
	}
	for path, of := range classed {
		for _, host := range []string{"evil.example", "evil.example:8080", "127.0.0.1.evil.example:8080", "evil.example.", "localhost.evil.example", "counterd.localhost.example"} {
			w := ask(of, host)
			problem(t, w, 421)
			assert.Contains(t, w.Body.String(), "-tokens", path)
			assert.Zero(t, g.store.Bytes(), "nothing is counted: %s", path)
		}
	}
	for _, of := range classed {
		for _, host := range []string{"127.0.0.1:8080", "127.0.0.1", "[::1]:8080", "[::1]", "::1", "192.0.2.1:80", "localhost:8080", "LOCALHOST", "a.localhost:1", "counterd:8080", "x", ""} {
			w := ask(of, host)
			assert.Contains(t, []int{200, 204, 429}, w.Code, "%s %s: %s", host, of.target, w.Body)
		}
	}
	g.config.LoopbackOnly = false
	g.client = newDescribed(g.config)
	assert.Equal(t, 200, ask(classed["/v1/events"], "evil.example").Code)
}

// A page of another origin is refused what changes anything, whatever its name; a page of this
// server, and what is no browser, is not.
func TestForeignPagesAreRefused(t *testing.T) {
	g := newLocal(t)
	for _, test := range []struct {
		name, value string
		want        int
	}{
		{"Sec-Fetch-Site", "cross-site", 403}, {"Sec-Fetch-Site", "same-site", 403}, {"Origin", "https://evil.example", 403}, {"Origin", "null", 403},
		{"Sec-Fetch-Site", "same-origin", 200}, {"Sec-Fetch-Site", "none", 200}, {"Origin", "http://127.0.0.1:8080", 200}, {"X-None", "x", 200},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/events/plain/increment", strings.NewReader(who))
		r.Host = "127.0.0.1:8080"
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(test.name, test.value)
		w := httptest.NewRecorder()
		g.client.ServeHTTP(w, r)
		assert.Equal(t, test.want, w.Code, "%s: %s", test.name, test.value)
		if test.want == 403 {
			problem(t, w, 403)
			assert.Zero(t, g.store.Bytes())
		}
	}
}

// A browser sends the password of the page with the requests of any page. So there a page of another origin is refused
// what changes anything with tokens, too, and by the address for operators.
func TestForeignPagesAreRefusedByThePage(t *testing.T) {
	g := newGuarded(t)
	done := 0
	g.config.Page = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			done++
		}
	})
	tokens, open := g.config, g.config
	open.Gate = nil
	local := open
	local.LoopbackOnly = true
	for name, config := range map[string]api.ServerConfig{"tokens": tokens, "open to all": open, "local": local} {
		for _, h := range []http.Handler{newDescribed(config), newDescribedAdmin(config)} {
			for _, test := range []struct {
				name, value string
				want        int
			}{
				{"Sec-Fetch-Site", "cross-site", 403}, {"Sec-Fetch-Site", "same-site", 403},
				{"Origin", "https://evil.example", 403}, {"Origin", "http://127.0.0.1:9090", 403}, {"Origin", "null", 403},
				{"Sec-Fetch-Site", "same-origin", 200}, {"Sec-Fetch-Site", "none", 200},
				{"Origin", "http://127.0.0.1:8080", 200}, {"X-None", "x", 200},
			} {
				ask := func(method, target, class string) *httptest.ResponseRecorder {
					r := httptest.NewRequestWithContext(t.Context(), method, target, nil)
					r.Host = "127.0.0.1:8080"
					r.SetBasicAuth("oncall", secret(class))
					r.Header.Set(test.name, test.value)
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					return w
				}
				done = 0
				w := ask("POST", "/ui/reset", "see-reset")
				assert.Equal(t, test.want, w.Code, "%s, %s: %s", name, test.name, test.value)
				if test.want == 403 {
					assert.Contains(t, problem(t, w, 403).Detail, "another origin")
				}
				assert.Equal(t, test.want == 200, done == 1)
				assert.Equal(t, 200, ask("GET", "/ui/", "see").Code, "a link may lead to the page")
			}
		}
	}
}

// A proxy asks with the host and the headers of its client: one that the rules trust may, and
// only to authorize.
func TestTrustedProxiesSendAnyHost(t *testing.T) {
	rules, err := rulesfile.Parse([]byte("events: {api: {limits: [{per: ip, rate: 5/m}], from: {ip: forwarded}}}\ntrusted_proxies: [192.0.2.1]"))
	require.NoError(t, err)
	g := newLocal(t)
	g.config.Service = newService(service.Config{Rules: func() *events.Rules { return rules }})
	h := newDescribed(g.config)
	ask := func(target, peer, host string) int {
		r := httptest.NewRequestWithContext(t.Context(), "POST", target, nil)
		r.RemoteAddr, r.Host = peer, host
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.Header.Set("Origin", "https://shop.example")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	assert.Equal(t, 204, ask("/v1/authorize/api", "192.0.2.1:1", "shop.example"))
	assert.Equal(t, 204, ask("/v1/authorize/api", "192.0.2.2:1", "counterd"), "as nginx names its upstream")
	assert.Equal(t, 421, ask("/v1/authorize/api", "192.0.2.2:1", "shop.example"))
	assert.Equal(t, 421, ask("/v1/events/api/hit", "192.0.2.1:1", "shop.example"))
	assert.Equal(t, 403, ask("/v1/events/api/hit", "192.0.2.1:1", "counterd"))
}
