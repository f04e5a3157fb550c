package api_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/api/wire"
)

// GET / lists all routes, those of operators on their own address, and where they are
// explained, by docs/http.md, which has each. It needs no token.
func TestTheIndexListsAllRoutes(t *testing.T) {
	g := newGuarded(t)
	clients, admin, err := api.RoutesOf(g.config)
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join("..", "docs", "http.md"))
	require.NoError(t, err)
	for _, of := range []struct {
		index  wire.Index
		routes []api.Route
	}{
		{answer[wire.Index](t, request(t, g.client, "GET", "/", "")), clients},
		{answer[wire.Index](t, request(t, g.admin, "GET", "/", "")), admin},
	} {
		assert.Equal(t, "counterd", of.index.Service)
		assert.True(t, strings.HasSuffix(of.index.Documentation, "/docs/http.md"))
		require.Len(t, of.index.Routes, len(of.routes))
		for i, route := range of.routes {
			path := of.index.Routes[i].Path
			if first := describedPaths[route.Path]; first != nil {
				assert.Equal(t, first[0], path)
			} else {
				assert.Equal(t, route.Path, path)
			}
			line := regexp.MustCompile("(?m)^- .*[` ]" + regexp.QuoteMeta(path) + "[`?]")
			assert.True(t, line.Match(page), "docs/http.md has no %s", route.Path)
			if len(route.Methods) > 0 {
				assert.Equal(t, route.Methods, of.index.Routes[i].Methods)
			} else {
				assert.Equal(t, []string{"*"}, of.index.Routes[i].Methods)
			}
		}
	}
	problem(t, request(t, g.client, "GET", "/?a=b", ""), 400)
	problem(t, request(t, g.client, "GET", "/", "{}"), 400)
	w := request(t, g.client, "GET", "/v1", "")
	problem(t, w, 404)
	assert.Contains(t, w.Body.String(), "GET /")
}

// A 405 names the methods that the route takes, in Allow and in its text.
func TestMethodsThatAreNotTaken(t *testing.T) {
	g := newGuarded(t)
	for path, of := range classed {
		h := g.client
		if strings.HasPrefix(path, "/debug") {
			h = g.admin
		}
		if path == "/v1/authorize/{event}" {
			continue // it takes any
		}
		target, _, _ := strings.Cut(of.target, "?")
		w := request(t, h, "PATCH", target, "")
		problem(t, w, 405)
		allow := w.Header().Get("Allow")
		assert.Contains(t, strings.Split(allow, ", "), of.method, path)
		var p wire.Problem
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
		assert.Equal(t, "The route takes "+allow+" only.", p.Detail, path)
	}
	allows := map[string]string{"/ui/": "GET, HEAD", "/ui/resets": "GET, HEAD", "/ui/reset": "GET, HEAD, POST"}
	for target, allow := range allows {
		for _, h := range []http.Handler{g.client, g.admin} {
			w := request(t, h, "DELETE", target, "")
			problem(t, w, 405)
			assert.Equal(t, allow, w.Header().Get("Allow"), target)
		}
	}
}
