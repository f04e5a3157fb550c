// Command chi limits the routes of chi, each user on each route.
package main

import (
	"fmt"
	"net/http"

	"github.com/go-chi/chi/v5"

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

// newRouter limits each route by its pattern: /notes/1 and /notes/2 are one. The middlewares of a group run when the
// pattern is known, those of the router itself before.
func newRouter(limiter *counterd.Limiter) http.Handler {
	router := chi.NewRouter()
	router.Group(func(router chi.Router) {
		router.Use(limiter.Middleware("api", counterd.FeatureFrom("route", route)))
		router.Get("/notes/{id}", note)
		router.Get("/tags", tags)
	})
	return router
}

func route(r *http.Request) (string, error) { return chi.RouteContext(r.Context()).RoutePattern(), nil }

func note(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "note", chi.URLParam(r, "id")) }

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
