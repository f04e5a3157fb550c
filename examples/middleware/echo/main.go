// Command echo limits the routes of echo, each user on each route.
package main

import (
	"net/http"

	"github.com/labstack/echo/v5"

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

// newRouter limits each route by its pattern: /notes/1 and /notes/2 are one.
func newRouter(limiter *counterd.Limiter) http.Handler {
	router := echo.New()
	router.Use(echo.WrapMiddleware(limiter.Middleware("api", counterd.FeatureFrom("route", route))))
	router.GET("/notes/:id", note)
	router.GET("/tags", tags)
	return router
}

// route returns the pattern, which echo puts into the request for middlewares of net/http.
func route(r *http.Request) (string, error) { return r.Pattern, nil }

func note(c *echo.Context) error { return c.String(http.StatusOK, "note "+c.Param("id")+"\n") }

func tags(c *echo.Context) error { return c.String(http.StatusOK, "tags\n") }

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
