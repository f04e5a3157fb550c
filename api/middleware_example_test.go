package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/memcache"
)

// A route of one's own service, limited per address: 2 in a second, 5 in a minute.
func ExampleNewMiddleware() {
	rules, err := rulesfile.Parse([]byte(`
events:
  url_shorten:
    limits:
      - per: ip
        rate: [2/s, 5/m]
`))
	if err != nil {
		panic(err)
	}
	store := memcache.NewEmbedded(memcache.EmbeddedConfig{}) // or memcache.NewFleet
	decider, err := limiter.New(limiter.Config{}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: store}))
	if err != nil {
		panic(err)
	}
	counting, err := service.New(service.Config{
		Rules:    func() *events.Rules { return rules },
		Limiter:  decider,
		Counters: counting.New(counting.Config{}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: store})),
	})
	if err != nil {
		panic(err)
	}
	limit, err := api.NewMiddleware(api.MiddlewareConfig{Service: counting, Event: "url_shorten"})
	if err != nil {
		panic(err)
	}

	mux := http.NewServeMux()
	mux.Handle("POST /shorten", limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
	})))

	// As http.ListenAndServe does with each request:
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("POST", "/shorten", nil))
	fmt.Println(w.Code)
	fmt.Println(w.Header().Get("RateLimit-Policy"))
	fmt.Println(w.Header().Get("RateLimit"))
	// Output:
	// 201
	// "ip-2-per-1s";q=2;w=1, "ip-5-per-1m";q=5;w=60
	// "ip-2-per-1s";r=1, "ip-5-per-1m";r=4
}

// serviceIn returns a service that counts in this process.
func serviceIn(rules *events.Rules) *service.Service {
	return newService(service.Config{Rules: func() *events.Rules { return rules }})
}

// Address and user together, behind a proxy: one address has 100 requests a
// minute, whichever user it is; one user has 3, from wherever; and the answer to a
// denial is the service's own.
func ExampleNewMiddleware_addressAndUser() {
	rules, err := rulesfile.Parse([]byte(`
events:
  search:
    limits:
      - {per: ip, rate: 100/m}
      - {per: user, rate: 3/m}
      - {per: [ip, user], rate: 2/m}
    from:
      ip: forwarded
trusted_proxies: [10.0.0.0/8]
`))
	if err != nil {
		panic(err)
	}
	limit, err := api.NewMiddleware(api.MiddlewareConfig{
		Service: serviceIn(rules),
		Event:   "search",
		From: map[string]api.Extractor{
			"user": func(r *http.Request) (string, error) {
				user, _, _ := r.BasicAuth() // that an earlier handler has checked
				return user, nil
			},
		},
		OnDenied: func(w http.ResponseWriter, r *http.Request, d limiter.Decision) {
			for _, state := range d.Limits {
				if !state.Allowed {
					fmt.Fprintln(w, "denied by", state.Name)
				}
			}
		},
	})
	if err != nil {
		panic(err)
	}
	search := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, _ := api.DecisionOf(r.Context())
		fmt.Fprintln(w, "served,", d.Limits[1].Remaining, "left for the user")
	}))

	for _, client := range []string{"203.0.113.9", "203.0.113.9", "203.0.113.9", "198.51.100.7", "198.51.100.7"} {
		r := httptest.NewRequest("GET", "/search", nil)
		r.RemoteAddr = "10.0.0.1:4711" // the proxy
		r.Header.Set("X-Forwarded-For", client)
		r.SetBasicAuth("ann", "…")
		w := httptest.NewRecorder()
		search.ServeHTTP(w, r)
		fmt.Print(w.Body)
	}
	// Output:
	// served, 2 left for the user
	// served, 1 left for the user
	// denied by ip+user-2-per-1m
	// served, 0 left for the user
	// denied by user-3-per-1m
}

// A config that cannot work is an error with all that is wrong with it, not a
// limit that never applies.
func ExampleNewMiddleware_incorrect() {
	rules, err := rulesfile.Parse([]byte(`
events:
  login_failed:
    limits:
      - {per: ip, rate: 20/d}
      - {per: email, rate: 3/d}
`))
	if err != nil {
		panic(err)
	}
	_, err = api.NewMiddleware(api.MiddlewareConfig{
		Service: serviceIn(rules),
		Event:   "login_failed",
		From:    map[string]api.Extractor{"E-Mail": api.FromHeader("X-Email")},
	})
	fmt.Println(err)
	// Output:
	// api: middleware: From: "E-Mail": a kind is 1 to 32 of a-z, 0-9, _ and -, and begins with a letter
	// api: middleware: From: login_failed has limits per email, and nothing says where requests carry it: name an extractor, FromNone if they do not
}
