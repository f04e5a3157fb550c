package hierarchy_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/bubble"
	"github.com/counterd/counterd/memcache"
)

// Limits that order the same hits differently, all of them full at the same number:
// a burst admits that number, no more and no fewer.
func TestABurstOnStackedLimitsAdmitsWhatFits(t *testing.T) {
	for name, test := range map[string]struct {
		rounds int
		limits string
	}{
		"equal":        {6, "[{per: ip, rate: [10/s, 10/m, 10/h, 10/d]}]"},
		"two counters": {4, "[{per: ip, rate: 10/d}, {per: [ip, user], rate: 10/h}]"},
		"three":        {3, "[{per: ip, rate: 20/m}, {per: user, rate: [10/s, 50/h]}, {per: [], rate: 1000/d}]"},
	} {
		t.Run(name, func(t *testing.T) {
			event := parseEvent(t, test.limits)
			clock := newFakeClock()
			onEveryStore(t, clock.Now, func(t *testing.T, open func() hierarchy.Store) {
				var limiters []*hierarchy.Limiter
				for range 3 {
					limiters = append(limiters, newLimiter(t, open(), clock.Now))
				}
				for round := range test.rounds {
					who := events.Features{"ip": fmt.Sprintf("203.0.113.%d", round), "user": fmt.Sprint(round)}
					var admitted atomic.Int64
					var running sync.WaitGroup
					for i := range 200 {
						running.Go(func() {
							d, err := limiters[i%3].Hit(t.Context(), hitOf(event, 1, who))
							assert.NoError(t, err)
							if d.Allowed {
								admitted.Add(1)
							}
						})
					}
					running.Wait()
					assert.Equal(t, int64(10), admitted.Load(), "round %d", round)
				}
			})
		})
	}
}

// What stands above a limit for good, as after a reload that lowered it, is a
// denial after a few looks.
func TestAnOverfullLimitDenies(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		testAnOverfullLimitDenies(t)
	})
}

func testAnOverfullLimitDenies(t *testing.T) {
	store := &countingStore{Store: memcache.NewEmbedded(memcache.EmbeddedConfig{})}
	l, err := hierarchy.NewLimiter(hierarchy.LimiterConfig{Store: store})
	require.NoError(t, err)
	who := events.Features{"ip": "203.0.113.9"}
	_, err = l.Hit(t.Context(), hitOf(parseEvent(t, "[{per: ip, rate: [100/m, 100/h]}]"), 90, who))
	assert.NoError(t, err)
	store.trips = 0
	began := time.Now()
	d, err := l.Hit(t.Context(), hitOf(parseEvent(t, "[{per: ip, rate: [10/m, 20/h]}]"), 1, who))
	assert.NoError(t, err)
	assert.False(t, d.Allowed)
	assert.Equal(t, hierarchy.Wait(3600), d.RetryAfter)
	assert.Less(t, time.Since(began), hierarchy.DefaultTimeout)
	assert.LessOrEqual(t, store.trips, 2+20+3, "add and take back, looks, the search")
}

// Who has found out that what stands above a limit stays there has done so for all who come
// in the second after, also when an increment makes it more: they do not wait.
func TestAnOverfullLimitDeniesAtOnceTheSecondTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memcache.NewEmbedded(memcache.EmbeddedConfig{})
		cache := hierarchy.NewBucketCache(1 << 20)
		l, err := hierarchy.NewLimiter(hierarchy.LimiterConfig{Store: store, Cache: cache})
		require.NoError(t, err)
		counters := hierarchy.NewCounters(hierarchy.Config{Store: store, Cache: cache})
		event, who := parseEvent(t, "[{per: ip, rate: [10/m, 20/h]}]"), events.Features{"ip": "203.0.113.9"}
		applied, err := event.Apply(nil, who)
		require.NoError(t, err)
		waited := func() time.Duration {
			_, err = counters.Increment(t.Context(), 30, time.Now(), applied[0].Counter)
			require.NoError(t, err)
			began := time.Now()
			d, err := l.Hit(t.Context(), hitOf(event, 1, who))
			require.NoError(t, err)
			require.False(t, d.Allowed)
			return time.Since(began)
		}
		require.GreaterOrEqual(t, waited(), hierarchy.DefaultTimeout/2)
		for range 3 {
			require.Zero(t, waited())
		}
		time.Sleep(2 * time.Second)
		require.Positive(t, waited(), "it may be a crowd again")
	})
}
