package limiter_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/internal/testkit/storestest"
)

// BenchmarkTogether has 64 callers hit one counter, or 10,000, on Memcached.
func BenchmarkTogether(b *testing.B) {
	for _, counters := range []int{1, 10_000} {
		b.Run(fmt.Sprint(counters), func(b *testing.B) {
			event := testkit.Event(b, "[{per: ip, rate: [100000000/s, 100000000/m, 100000000/h, 100000000/d]}]")
			l, err := limiter.New(limiter.Config{Timeout: time.Second}, hierarchy.NewCounters(hierarchy.Config{Store: storestest.OpenFleet(b, time.Now, memcachedtest.Start(b).Addr)}))
			require.NoError(b, err)
			who := make([]events.Features, counters)
			for i := range who {
				who[i] = events.Features{"ip": fmt.Sprintf("10.0.%d.%d", i/250, i%250)}
			}
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					d, err := l.Hit(b.Context(), hitOf(event, 1, who[rand.IntN(counters)]))
					if err != nil || !d.Allowed {
						b.Error(err, d)
					}
				}
			})
		})
	}
}
