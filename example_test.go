// The body of Example is the embedding example of README.md: its block of Go is these lines,
// without their first tab. embedding_all_test.go builds and runs that block in a module of its own, with Memcached.

package counterd_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/api"
)

// A program limits logins by address: 5 a minute and 100 a day, in any window.
func Example() {
	rules, err := counterd.ParseRules([]byte(`events: {login: {limits: [{per: ip, rate: [5/m, 100/d]}]}}`))
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := counterd.New(rules) // shared limits: New(rules, counterd.WithMemcached("10.0.0.1:11211"))
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	decision, err := limiter.Hit(context.Background(), "login", counterd.Features{"ip": "192.0.2.1"})
	fmt.Println(decision.Allowed, decision.Limits[0].Remaining, err)
	// Output: true 4 <nil>
}

// newLimiter returns a limiter for the examples: one login a minute from an address.
func newLimiter() *counterd.Limiter {
	rules, err := counterd.ParseRules([]byte(`events: {login: {limits: [{per: ip, rate: 1/m}]}}`))
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := counterd.New(rules)
	if err != nil {
		log.Fatal(err)
	}
	return limiter
}

// A middleware limits a handler: the peer's address is the feature.
func ExampleLimiter_Middleware() {
	limiter := newLimiter()
	defer limiter.Close()
	login := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		decision, _ := counterd.DecisionOf(r.Context())
		fmt.Fprintln(w, "welcome,", decision.Limits[0].Remaining, "left")
	})
	server := httptest.NewServer(limiter.Middleware("login")(login))
	defer server.Close()
	for range 2 {
		response, err := http.Get(server.URL)
		if err != nil {
			log.Fatal(err)
		}
		response.Body.Close()
		fmt.Println(response.StatusCode)
	}
	// Output:
	// 200
	// 429
}

// A program serves the routes that decide and count beside its own ones.
func ExampleLimiter_http() {
	limiter := newLimiter()
	defer limiter.Close()
	server := httptest.NewServer(api.NewHandler(limiter, api.Config{}))
	defer server.Close()
	hit := strings.NewReader(`{"features": {"ip": "192.0.2.1"}}`)
	response, err := http.Post(server.URL+"/v1/events/login/hit", "application/json", hit)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(response.StatusCode, strings.HasPrefix(string(answer), `{"allowed":true`))
	// Output: 200 true
}

// Limits change while a program runs.
func ExampleLimiter_SetRules() {
	limiter := newLimiter()
	defer limiter.Close()
	more, err := counterd.ParseRules([]byte(`events: {login: {limits: [{per: ip, rate: 2/m}]}}`))
	if err != nil {
		log.Fatal(err)
	}
	visitor := counterd.Features{"ip": "192.0.2.1"}
	for range 2 {
		decision, err := limiter.Hit(context.Background(), "login", visitor)
		fmt.Println(decision.Allowed, decision.Limits[0].Limit, err)
		if err := limiter.SetRules(more); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// true 1 <nil>
	// true 2 <nil>
}
