package eventlog_test

import (
	"context"
	"fmt"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/memcache"
)

// A limiter on both engines: the algorithm of a limit says which one keeps its counter.
func Example() {
	now := time.Unix(1_800_000_000, 0)
	clock := func() time.Time { return now }
	counters := hierarchy.NewCounters(hierarchy.Config{Store: memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock}), Clock: clock})
	logs, err := eventlog.New(counters.Base())
	if err != nil {
		fmt.Println(err)
		return
	}
	l, err := limiter.New(limiter.Config{}, counters, logs)
	if err != nil {
		fmt.Println(err)
		return
	}
	login := &events.Event{Name: "login", Rules: []events.Rule{{
		Per: []string{"ip"}, Limits: []events.Limit{{Name: "2/s", N: 2, Window: time.Second, Algorithm: eventlog.Algorithm}},
	}}}
	for range 4 {
		d, err := l.Hit(context.Background(), limiter.Hit{Event: login, Features: events.Features{"ip": "192.0.2.1"}, Cost: 1})
		fmt.Println(d.Allowed, d.RetryAfter, err)
		now = now.Add(300 * time.Millisecond)
	}
	// Output:
	// true 0s <nil>
	// true 0s <nil>
	// false 400ms <nil>
	// false 100ms <nil>
}
