package eventlog_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/internal/testkit/storestest"
)

// BenchmarkHit compares hits by buckets and by logs, on a Memcached server. Each of 64 counters has
// had so many hits in the last hour.
func BenchmarkHit(b *testing.B) {
	const far = "[{per: ip, rate: [1000000/m, 1000000/h, 1000000/6h, 1000000/d]}]"
	for _, bench := range []struct {
		name, limits string
		before       int
	}{{"far", far, 1}, {"500 before", far, 500}, {"denied", "[{per: ip, rate: 100/d}]", 100}} {
		for _, algorithm := range []string{"sliding-window", eventlog.Algorithm} {
			b.Run(bench.name+"/"+algorithm, func(b *testing.B) {
				var ago time.Duration
				clock := func() time.Time { return time.Now().Add(-ago) }
				counters := hierarchy.NewCounters(hierarchy.Config{Store: storestest.OpenFleet(b, clock, memcachedtest.Start(b).Addr), Clock: clock})
				logs, err := eventlog.New(counters.Base())
				require.NoError(b, err)
				l, err := limiter.New(limiter.Config{Timeout: time.Second, NoCachedDenials: true}, counters, logs)
				require.NoError(b, err)
				event := testkit.Event(b, bench.limits)
				for i := range event.Rules[0].Limits {
					event.Rules[0].Limits[i].Algorithm = algorithm
				}
				var hits []limiter.Hit
				for i := range 64 {
					hits = append(hits, limiter.Hit{Event: event, Features: events.Features{"ip": fmt.Sprintf("192.0.2.%d", i)}, Cost: 1})
				}
				for i := range bench.before {
					ago = time.Hour * time.Duration(bench.before-i) / time.Duration(bench.before)
					results, err := l.Hits(context.Background(), hits)
					require.NoError(b, err)
					require.True(b, results[0].Decision.Allowed)
				}
				ago = 0
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if _, err := l.Hit(context.Background(), hits[i%len(hits)]); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
