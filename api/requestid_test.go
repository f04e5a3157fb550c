package api_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/httpdecision"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/memcache"
)

// named makes a request of those names.
func named(t *testing.T, h http.Handler, method, target, body string, names ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for _, name := range names {
		r.Header.Add("X-Request-Id", name)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

var madeID = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// A client's name for its request comes back, one that is none is replaced, and where the
// client has none an answer has one that an operator can search for.
func TestRequestIDs(t *testing.T) {
	h := newServer()
	hit := func(names ...string) string {
		return named(t, h, "POST", "/v1/events/export/hit", `{"features": {}}`, names...).Header().Get("X-Request-Id")
	}
	for _, good := range []string{"a", "0", "A-b_c.9", strings.Repeat("x", 64)} {
		assert.Equal(t, good, hit(good))
	}
	for _, wrong := range [][]string{{""}, {strings.Repeat("x", 65)}, {"a b"}, {"a\"b"}, {"ä"}, {"a/b"}, {"a:b"}, {"a", "b"}, {"a,b"}} {
		assert.Regexp(t, madeID, hit(wrong...), wrong)
	}
	assert.NotEqual(t, hit(""), hit(""))
	assert.Empty(t, hit(), "nobody needs it")
	for range 8 {
		hit()
	}
	w := named(t, h, "POST", "/v1/events/export/hit", `{"features": {}}`)
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	assert.NotContains(t, w.Header(), "X-Request-Id", "a denial is an answer like any other")
	for _, fault := range []string{"/v1/events/none/count", "/none", "/v1/events/export/count"} {
		w := named(t, h, "GET", fault, "")
		require.GreaterOrEqual(t, w.Code, 400)
		assert.Regexp(t, madeID, w.Header().Get("X-Request-Id"), fault)
	}
}

// The log says of which request it speaks, and the answer says the same.
func TestRequestIDsInTheLog(t *testing.T) {
	var log bytes.Buffer
	broken := newHandler(failingStore{}, &log, nil)
	for _, names := range [][]string{{"mine"}, nil} {
		log.Reset()
		w := named(t, broken, "GET", url24h+"203.0.113.9", "", names...)
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		id := w.Header().Get("X-Request-Id")
		require.NotEmpty(t, id)
		if names != nil {
			assert.Equal(t, "mine", id)
			assert.Contains(t, log.String(), "request_id="+id+" ")
		}
	}

	log.Reset()
	panics := newDescribed(api.ServerConfig{
		Service:   newService(service.Config{Rules: func() *events.Rules { panic("boom") }}),
		AccessLog: true,
		Log:       slog.New(slog.NewTextHandler(&log, nil)),
	})
	w := named(t, panics, "GET", "/v1/events", "")
	require.Equal(t, http.StatusInternalServerError, w.Code)
	id := w.Header().Get("X-Request-Id")
	require.Regexp(t, madeID, id)
	assert.Equal(t, 2, strings.Count(log.String(), "request_id="+id+" "), "%s", &log)
	assert.Contains(t, log.String(), "msg=request request_id="+id+" method=GET route=/v1/events status=500 ")
	assert.Contains(t, log.String(), fmt.Sprintf(" bytes=%d\n", w.Body.Len()))
}

// A middleware names the requests that it answers itself, by the name that the program has
// given them where it has.
func TestRequestIDsOfAMiddleware(t *testing.T) {
	rules := testRules()
	store := memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock})
	var log bytes.Buffer
	m, err := httpdecision.NewMiddleware(httpdecision.MiddlewareConfig{
		Service: newService(service.Config{Limiter: limiterOn(t, store), Rules: func() *events.Rules { return rules }}),
		EventOf: func(*http.Request) string { return "unknown" },
		Log:     slog.New(slog.NewTextHandler(&log, nil)),
	})
	require.NoError(t, err)
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	w := named(t, m(next), "GET", "/", "", "mine")
	require.Equal(t, http.StatusInternalServerError, w.Code)
	assert.Equal(t, "mine", w.Header().Get("X-Request-Id"))
	assert.Contains(t, log.String(), "request_id=mine ")
	w = named(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", "the-program's")
		m(next).ServeHTTP(w, r)
	}), "GET", "/", "", "mine")
	assert.Equal(t, "the-program's", w.Header().Get("X-Request-Id"))
	assert.Contains(t, log.String(), "request_id=the-program's ")
}
