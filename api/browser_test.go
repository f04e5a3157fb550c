package api_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/wire"
)

// inBrowser asks as a browser asks for a page that a person wants to see.
func inBrowser(t *testing.T, h http.Handler, target, password string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	r.Header.Set("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
	if password != "" {
		r.SetBasicAuth("anyone", password)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// html asserts that the answer is a page that loads nothing.
func html(t *testing.T, w *httptest.ResponseRecorder, status int) string {
	t.Helper()
	require.Equal(t, status, w.Code, w.Body)
	assert.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
	assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	assert.Equal(t, "default-src 'none'; base-uri 'none'; frame-ancestors 'none'", w.Header().Get("Content-Security-Policy"))
	assert.NotContains(t, w.Body.String(), "src=")
	return w.Body.String()
}

// A browser gets a page at /, which leads to /ui/ where that is served, and says where it is otherwise. Programs get JSON.
func TestTheIndexInABrowser(t *testing.T) {
	g := newGuarded(t)
	body := html(t, inBrowser(t, g.admin, "/", ""), 200)
	assert.Contains(t, body, `<a href="ui/">`)
	assert.Contains(t, body, "<title>counterd</title>")
	assert.Contains(t, body, `<a href="openapi.json">`)
	config := g.config
	config.Page = nil
	body = html(t, inBrowser(t, newDescribed(config), "/", ""), 200)
	assert.NotContains(t, body, `ui/"`)
	assert.Contains(t, body, "<code>/ui/</code> is on the address of <code>-admin</code>")

	w := request(t, g.admin, "GET", "/", "")
	assert.Equal(t, "counterd", answer[wire.Index](t, w).Service)
	assert.Equal(t, "Accept", w.Header().Get("Vary"))
	assert.Equal(t, "Accept", inBrowser(t, g.admin, "/", "").Header().Get("Vary"))
}

// A browser that the page refuses shows how to get in. Programs get a problem.
func TestThePageRefusesInHTML(t *testing.T) {
	g := newGuarded(t)
	for _, password := range []string{"", "no-caller-has-this-token"} {
		w := inBrowser(t, g.admin, "/ui/", password)
		body := html(t, w, 401)
		assert.Equal(t, `Basic realm="counterd"`, w.Header().Get("WWW-Authenticate"))
		assert.Contains(t, body, "any user name, and a token as the password")
		assert.NotContains(t, body, "no-caller-has-this-token")
		assert.NotEmpty(t, w.Header().Get("X-Request-Id"))
	}
	body := html(t, inBrowser(t, g.admin, "/ui/rules", secret("operate")), 403)
	assert.Contains(t, body, "<code>see</code>")
	problem(t, request(t, g.admin, "GET", "/ui/", ""), 401)
	problem(t, inBrowser(t, g.client, classed["/v1/events/{event}/explain"].target, ""), 401)
}
