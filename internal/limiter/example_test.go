package limiter_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/memcache"
)

// A program that has a Limiter in it counts what it wants of the decisions, with any
// library for metrics. Names of events and limits are few: they make good labels. Values of
// features do not.
func ExampleConfig_onDecision() {
	var mu sync.Mutex // hits are decided at the same time
	counted := map[string]int{}
	l, err := limiter.New(limiter.Config{
		OnDecision: func(_ context.Context, hit limiter.Hit, decision *events.Decision, call limiter.Call) {
			if call != limiter.CallHit {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, limit := range decision.Limits {
				counted[fmt.Sprintf("%s %s allowed=%t", hit.Event.Name, limit.Name, limit.Allowed)]++
			}
		}}, hierarchy.NewCounters(hierarchy.Config{Store: memcache.NewEmbedded(memcache.EmbeddedConfig{})}))
	if err != nil {
		log.Fatal(err)
	}
	rules, err := rulesfile.Parse([]byte("events: {login_failed: {limits: [{per: ip, rate: 2/d}]}}"))
	if err != nil {
		log.Fatal(err)
	}
	for range 5 {
		hit := limiter.Hit{Event: rules.Events["login_failed"], Features: events.Features{"ip": "192.0.2.1"}, Cost: 1}
		if _, err := l.Hit(context.Background(), hit); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(counted)
	// Output: map[login_failed ip-2-per-24h allowed=false:3 login_failed ip-2-per-24h allowed=true:2]
}
