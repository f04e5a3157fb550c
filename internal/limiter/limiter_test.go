package limiter_test

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
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/storestest"
)

func newLimiter(tb testing.TB, store store.Store, clock func() time.Time) *limiter.Limiter {
	tb.Helper()
	// The machine that runs the tests may be busy: a wide grace keeps hits trusted.
	l, err := limiter.New(limiter.Config{Timeout: 20 * time.Second,
		OnStoreError: func(err error) { tb.Error(err) }}, hierarchy.NewCounters(hierarchy.Config{Store: store, Clock: clock, Grace: 40 * time.Second}))
	require.NoError(tb, err)
	return l
}

func hitOf(event *events.Event, cost int64, features events.Features) limiter.Hit {
	return limiter.Hit{Event: event, Features: features, Cost: cost}
}

// Processes that hit at once admit as many as the limit says, and not one more.
func TestConcurrentHitsAdmitTheLimit(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	for name, test := range map[string]struct {
		limits string
		cost   int64
		want   int64
	}{
		"a day":      {"[{per: ip, rate: 10/d}]", 1, 10},
		"four":       {"[{per: ip, rate: [10/d, 1000/h, 1000/m, 1000/s]}]", 1, 10},
		"cost":       {"[{per: ip, rate: 10/d}]", 3, 3},
		"two":        {"[{per: ip, rate: 10/d}, {per: [ip, user], rate: 500/h}]", 1, 10},
		"fifteen":    {"[{per: ip, rate: 10/15m}]", 1, 10},
		"minutely":   {"[{per: ip, rate: 10/15m, precision: minute}]", 1, 10},
		"soft":       {"[{per: ip, rate: 10/m, throttle: soft 10%}]", 1, 11},
		"overridden": {"[{per: ip, rate: 100/d, overrides: {'203.0.113.9': 10/d}}]", 1, 10},
	} {
		t.Run(name, func(t *testing.T) {
			event := testkit.Event(t, test.limits)
			storestest.OnEveryStore(t, clock.Now, func(t *testing.T, open func() store.Store) {
				var limiters []*limiter.Limiter
				for range 3 {
					limiters = append(limiters, newLimiter(t, open(), clock.Now))
				}
				var admitted atomic.Int64
				var running sync.WaitGroup
				for g := range 64 {
					running.Go(func() {
						for i := range 3 {
							d, err := limiters[i].Hit(t.Context(), hitOf(event, test.cost, events.Features{"ip": "203.0.113.9", "user": fmt.Sprint(g)}))
							assert.NoError(t, err)
							if d.Allowed {
								admitted.Add(1)
							}
						}
					})
				}
				running.Wait()
				assert.Equal(t, test.want, admitted.Load())
			})
		})
	}
}

func TestAFixedWindowsEdge(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	event := testkit.Event(t, "[{per: ip, rate: 100/m}]")
	l := newLimiter(t, storestest.Embedded(clock.Now), clock.Now)
	admitted := 0
	for range 4 { // 59 seconds into the minute, then the next one
		for range 100 {
			d, err := l.Hit(t.Context(), hitOf(event, 1, events.Features{"ip": "203.0.113.9"}))
			require.NoError(t, err)
			if d.Allowed {
				admitted++
			}
		}
		clock.Advance(13 * time.Second)
	}
	assert.Equal(t, 100, admitted)
}

func TestADecision(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	event := testkit.Event(t, "[{per: ip, rate: [2/s, 5/m, 100/d]}]")
	l := newLimiter(t, storestest.Embedded(clock.Now), clock.Now)
	who := events.Features{"ip": "203.0.113.9"}
	for i := range 5 {
		d, err := l.Hit(t.Context(), hitOf(event, 1, who))
		require.NoError(t, err)
		require.True(t, d.Allowed, "%d: %+v", i, d)
		assert.Equal(t, int64(1), d.Limits[0].Count)
		assert.Equal(t, int64(i+1), d.Limits[1].Count)
		assert.Equal(t, int64(100-i-1), d.Limits[2].Remaining)
		clock.Advance(2 * time.Second)
	}
	d, err := l.Hit(t.Context(), hitOf(event, 1, who))
	require.NoError(t, err)
	assert.False(t, d.Allowed)
	assert.Equal(t, engine.Seconds(50), d.RetryAfter, "the first of the five leaves the minute")
	assert.Equal(t, []bool{true, false, true}, []bool{d.Limits[0].Allowed, d.Limits[1].Allowed, d.Limits[2].Allowed})
	assert.Equal(t, int64(5), d.Limits[1].Count)
	assert.Equal(t, int64(5), d.Limits[2].Count, "it left no trace")
	check, err := l.Check(t.Context(), hitOf(event, 1, who))
	require.NoError(t, err)
	assert.Equal(t, d.Limits[1], check.Limits[1])

	clock.Advance(49 * time.Second)
	check, err = l.Check(t.Context(), hitOf(event, 1, who))
	require.NoError(t, err)
	assert.False(t, check.Allowed)
	assert.Equal(t, engine.Seconds(1), check.RetryAfter)
	clock.Advance(time.Second)
	d, err = l.Hit(t.Context(), hitOf(event, 1, who))
	require.NoError(t, err)
	assert.True(t, d.Allowed)
}
