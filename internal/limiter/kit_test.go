package limiter_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit"

	"github.com/counterd/counterd/internal/limiter"
)

const smallCache = 1 << 20 // for tests that make many limiters

func newCounters(st store.Store, clock func() time.Time) *hierarchy.Counters {
	return hierarchy.NewCounters(hierarchy.Config{Store: st, Clock: clock, CacheBytes: smallCache})
}

// localEngines returns engines on a store of the test's own process.
func localEngines(st store.Store, clock func() time.Time) []limiter.Engine {
	return []limiter.Engine{hierarchy.NewCounters(hierarchy.Config{Store: st, Clock: clock, CacheBytes: -1})}
}

// otherStore is a store that a test can replace by another one.
type otherStore struct{ store.Store }

func newTestLimiter(tb testing.TB, st store.Store, clock func() time.Time) *limiter.Limiter {
	tb.Helper()
	l, err := limiter.New(limiter.Config{Timeout: time.Second}, newCounters(st, clock))
	require.NoError(tb, err)
	return l
}

// newForgetfulLimiter returns a limiter that caches nothing.
func newForgetfulLimiter(tb testing.TB, st store.Store, clock func() time.Time) *limiter.Limiter {
	tb.Helper()
	counters := hierarchy.NewCounters(hierarchy.Config{Store: st, Clock: clock, CacheBytes: -1})
	l, err := limiter.New(limiter.Config{Timeout: time.Second, NoCachedDenials: true}, counters)
	require.NoError(tb, err)
	return l
}

// errDown is what a store says that fails.
var errDown = errors.New("down")

// cached are two processes on one store, each with a cache, and a clock.
type cached struct {
	clock    *testkit.Clock
	store    *storetest.Solo
	event    *events.Event
	counter  events.Counter
	counters [2]*hierarchy.Counters
	limiters [2]*limiter.Limiter
}

func newCached(t *testing.T, limits string) *cached {
	c := &cached{clock: testkit.NewClock(time.Time{}), event: testkit.Event(t, limits)}
	c.store = storetest.NewSolo(c.clock.Now)
	var err error
	c.counter, err = c.event.Counter(events.Features{"ip": "192.0.2.1"})
	require.NoError(t, err)
	for i := range 2 {
		c.counters[i] = hierarchy.NewCounters(hierarchy.Config{Store: c.store, Clock: c.clock.Now})
		c.limiters[i], err = limiter.New(limiter.Config{Timeout: hierarchy.DefaultGrace / 2}, c.counters[i])
		require.NoError(t, err)
	}
	return c
}

func (c *cached) increment(t *testing.T, process int, ago time.Duration) {
	t.Helper()
	_, err := c.counters[process].Increment(t.Context(), 1, c.clock.Now().Add(-ago), c.counter)
	require.NoError(t, err)
}
