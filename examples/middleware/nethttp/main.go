// Command nethttp limits the routes of net/http, each user on each route.
package main

import (
	"fmt"
	"net/http"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/examples/internal/play"
)

const rules = `
events:
  api:
    limits:
      - {per: ip, rate: 600/m}
      - {per: [user, route], rate: 3/m}
`

// newRouter limits each route by its pattern: /notes/1 and /notes/2 are one. The middleware is around the handler,
// not around the router, which finds the pattern.
func newRouter(limiter *counterd.Limiter) http.Handler {
	limited := limiter.Middleware("api", counterd.FeatureFrom("route", route))
	mux := http.NewServeMux()
	mux.Handle("GET /notes/{id}", limited(http.HandlerFunc(note)))
	mux.Handle("GET /tags", limited(http.HandlerFunc(tags)))
	return mux
}

func route(r *http.Request) (string, error) { return r.Pattern, nil }

func note(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "note", r.PathValue("id")) }

func tags(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "tags") }

func main() {
	play.Main(func(s *play.Stage) {
		url := s.Serve(newRouter(s.Limiter(rules)))
		for _, id := range []string{"1", "2", "3", "4"} {
			s.Get(url+"/notes/"+id, "ada")
		}
		s.Get(url+"/tags", "ada")
		s.Get(url+"/notes/1", "bob")
	})
}
