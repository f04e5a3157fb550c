// Command apikeys limits an API by its keys: bursts, and a quota by the month and the plan.
package main

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // for machines without time zones

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/examples/internal/play"
)

//go:embed rules.yaml
var rules string

// customer is the owner of a key. Counters are by its name: they hold no key, and a customer with a new key has no
// new quota.
type customer struct{ name, plan string }

// api serves the customers that have a key, which it finds by the key's hash.
type api struct {
	customers map[[sha256.Size]byte]customer
}

type customerKey struct{}

// newAPI returns the API's handler: the key is checked first, so that only valid keys have counters.
func newAPI(a *api, limiter *counterd.Limiter) http.Handler {
	limited := limiter.Middleware("api",
		counterd.FeatureFrom("key", func(r *http.Request) (string, error) { return customerOf(r).name, nil }),
		counterd.FeatureFrom("free", nameIf("free")), // the limit of another plan does not apply
		counterd.FeatureFrom("pro", nameIf("pro")),
	)
	return a.authenticated(limited(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})))
}

func customerOf(r *http.Request) customer {
	of, _ := r.Context().Value(customerKey{}).(customer)
	return of
}

func nameIf(plan string) func(*http.Request) (string, error) {
	return func(r *http.Request) (string, error) {
		if of := customerOf(r); of.plan == plan {
			return of.name, nil
		}
		return "", nil
	}
}

func (a *api) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		of, found := a.customers[sha256.Sum256([]byte(key))]
		if !found {
			http.Error(w, "unknown key", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), customerKey{}, of)))
	})
}

func main() { play.Main(run) }

// run has three customers call. A key is as its customer's name here: in yours it is random.
func run(s *play.Stage) {
	a := &api{map[[sha256.Size]byte]customer{}}
	for _, of := range []customer{{"acme", "free"}, {"initech", "pro"}, {"globex", "pro"}} {
		a.customers[sha256.Sum256([]byte(of.name))] = of
	}
	limiter := s.Limiter(rules)
	url := s.Serve(newAPI(a, limiter)) + "/v1/things"

	fmt.Println("# initech, plan pro: a burst, and one more after Retry-After")
	var denied *http.Response
	for range 6 {
		denied = s.Get(url, "initech")
	}
	seconds, err := strconv.Atoi(denied.Header.Get("Retry-After"))
	s.Check(err)
	select {
	case <-time.After(time.Duration(seconds) * time.Second):
	case <-s.Context().Done():
	}
	s.Get(url, "initech")

	fmt.Println("# acme, plan free: the quota of the month is used up")
	for range 4 {
		s.Get(url, "acme")
	}
	fmt.Println("# support gives acme 100 for this week: it decides at once")
	monthly, err := events.ParseRate("100/month")
	s.Check(err)
	s.Check(limiter.SetOverride(s.Context(), counterd.Override{
		Event: "api", Kind: "free", Value: "acme", Rates: []events.Limit{monthly}, Until: time.Now().Add(7 * 24 * time.Hour),
	}))
	s.Get(url, "acme")

	fmt.Println("# globex has a contract of its own, and an unknown key has nothing")
	s.Get(url, "globex")
	s.Get(url, "nokey")
}
