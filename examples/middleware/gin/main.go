// Command gin limits the routes of gin, each user on each route.
package main

import (
	"net/http"

	"github.com/gin-gonic/gin"

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
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(wrap(limiter.Middleware("api", counterd.FeatureFrom("route", route))))
	router.GET("/notes/:id", note)
	router.GET("/tags", tags)
	return router
}

// wrap makes a middleware of gin of one of net/http. What it does not pass on is answered already.
func wrap(middleware func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		passed := false
		next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			passed = true
			c.Request = r // its context has the decision
			c.Next()
		})
		c.Request.Pattern = c.FullPath()
		middleware(next).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort()
		}
	}
}

func route(r *http.Request) (string, error) { return r.Pattern, nil }

func note(c *gin.Context) { c.String(http.StatusOK, "note %s\n", c.Param("id")) }

func tags(c *gin.Context) { c.String(http.StatusOK, "tags\n") }

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
