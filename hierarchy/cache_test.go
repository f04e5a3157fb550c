package hierarchy

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
)

// cached are two processes on one store, each with a cache, and a clock.
type cached struct {
	clock    *testkit.Clock
	store    *storetest.Solo
	event    *events.Event
	counter  events.Counter
	counters [2]*Counters
	limiters [2]*limiter.Limiter
}

// len returns the number of counters in the cache.
func (c *closedCache) len() (n int) {
	for i := range c.shards {
		n += len(c.shards[i].entries)
	}
	return n
}

func newCached(t *testing.T, limits string) *cached {
	c := &cached{clock: testkit.NewClock(time.Time{}), event: testkit.Event(t, limits)}
	c.store = storetest.NewSolo(c.clock.Now)
	var err error
	c.counter, err = c.event.Counter(events.Features{"ip": "192.0.2.1"})
	require.NoError(t, err)
	for i := range 2 {
		c.counters[i] = NewCounters(Config{Store: c.store, Clock: c.clock.Now})
		c.limiters[i], err = limiter.New(limiter.Config{Timeout: DefaultGrace / 2}, c.counters[i])
		require.NoError(t, err)
	}
	return c
}

func (c *cached) increment(t *testing.T, process int, ago time.Duration) {
	t.Helper()
	_, err := c.counters[process].Increment(t.Context(), 1, c.clock.Now().Add(-ago), c.counter)
	require.NoError(t, err)
}

// day returns the count of the last day and how many buckets were read for it.
func (c *cached) day(t *testing.T, process int) (count int64, reads int) {
	t.Helper()
	c.store.Reads = 0
	sum, err := c.counters[process].Count(t.Context(), c.counter, 24*time.Hour, time.Time{})
	require.NoError(t, err)
	return sum.Count, c.store.Reads
}

// Asked again within a second, a count reads the buckets that are still open only.
func TestClosedBucketsAreReadOnceASecond(t *testing.T) {
	c := newCached(t, "[{per: ip, rate: 1000/d}]")
	c.increment(t, 0, 5*time.Hour)
	count, reads := c.day(t, 0)
	assert.Equal(t, int64(1), count)
	whole := reads
	require.Greater(t, whole, 80)
	c.clock.Advance(999 * time.Millisecond)
	count, reads = c.day(t, 0)
	assert.Equal(t, int64(1), count)
	assert.LessOrEqual(t, reads, 6, "the open ones: twice the grace, and now")
	assert.GreaterOrEqual(t, reads, 5)
	c.clock.Advance(2 * time.Millisecond)
	_, reads = c.day(t, 0)
	assert.Greater(t, reads, whole-8, "a second later")
}

// A hot counter near its limit reads its cover once a second, not with each hit, and
// what it decides is exact.
func TestAHotCounterReadsItsCoverOnceASecond(t *testing.T) {
	c := newCached(t, "[{per: ip, rate: 50/d}]")
	for range 20 { // in the hour that the window cuts, before and behind the cut
		c.increment(t, 0, 23*time.Hour+59*time.Minute)
	}
	c.clock.Advance(2 * time.Minute)
	first := 0
	for i := range 50 {
		c.store.Reads = 0
		d, err := c.limiters[0].Hit(t.Context(), limiter.Hit{Event: c.event, Features: events.Features{"ip": "192.0.2.1"}, Cost: 1})
		require.NoError(t, err)
		require.True(t, d.Allowed, i)
		switch {
		case c.store.Reads > 20:
			require.Zero(t, first, "the second time, at hit %d", i)
			first = i
		case first > 0:
			require.LessOrEqual(t, c.store.Reads, 1)
		}
	}
	require.Positive(t, first)
	d, err := c.limiters[0].Hit(t.Context(), limiter.Hit{Event: c.event, Features: events.Features{"ip": "192.0.2.1"}, Cost: 1})
	require.NoError(t, err)
	assert.False(t, d.Allowed)
}

// What this process changes in closed buckets it sees at once; what others do, a
// second later.
func TestChangesOfClosedBucketsAreSeen(t *testing.T) {
	c := newCached(t, "[{per: ip, rate: 1000/d}]")
	c.increment(t, 0, time.Hour)
	for process := range 2 {
		count, _ := c.day(t, process)
		require.Equal(t, int64(1), count)
	}
	c.increment(t, 0, time.Hour)
	count, _ := c.day(t, 0)
	assert.Equal(t, int64(2), count, "its own increment")
	count, _ = c.day(t, 1)
	assert.Equal(t, int64(1), count, "another's, within the second")
	c.clock.Advance(time.Second)
	count, _ = c.day(t, 1)
	assert.Equal(t, int64(2), count, "another's, a second later")

	count, _ = c.day(t, 0)
	require.Equal(t, int64(2), count)
	require.NoError(t, c.counters[0].Reset(t.Context(), c.counter))
	count, _ = c.day(t, 0)
	assert.Zero(t, count, "its own reset")
	c.clock.Advance(time.Second)
	count, _ = c.day(t, 1)
	assert.Zero(t, count, "another's, a second later")
}

// The cache is for counters that are asked about again within a second: hits on others leave
// nothing there.
func TestHitsFarApartTakeNoPlace(t *testing.T) {
	c := newCached(t, "[{per: ip, rate: 1000/d}]")
	hit := func() (reads int) {
		c.store.Reads = 0
		_, err := c.limiters[0].Hit(t.Context(), limiter.Hit{Event: c.event, Features: events.Features{"ip": "192.0.2.1"}, Cost: 1})
		require.NoError(t, err)
		return c.store.Reads
	}
	cache := c.counters[0].closed
	all := hit()
	for range 3 {
		c.clock.Advance(closedLife + time.Millisecond)
		require.Equal(t, all, hit())
		require.Zero(t, cache.len())
	}
	require.Equal(t, all, hit())
	require.Equal(t, 1, cache.len())
	c.clock.Advance(closedLife - time.Nanosecond)
	require.Less(t, hit(), all)
}

// What was read before a change of this process is not remembered after it.
func TestWhatWasReadBeforeAChangeIsNotRemembered(t *testing.T) {
	c := newCached(t, "[{per: ip, rate: 1000/d}]")
	c.increment(t, 0, time.Hour)
	changing := false
	c.store.Before = func() error {
		if changing {
			changing = false
			c.counters[0].closed.drop(c.counter.ID())
		}
		return nil
	}
	changing = true
	_, first := c.day(t, 0)
	_, second := c.day(t, 0)
	assert.Equal(t, first, second)
	_, third := c.day(t, 0)
	assert.Less(t, third, 10)
}

// A clock that is set back has nothing be remembered for longer.
func TestAClockSetBackRemembersNothing(t *testing.T) {
	c := newCached(t, "[{per: ip, rate: 1000/d}]")
	_, whole := c.day(t, 0)
	c.clock.Advance(-10 * time.Second)
	_, reads := c.day(t, 0)
	assert.Greater(t, reads, whole/2)
}

// The cache is bounded: with many counters it forgets some, and what does not fit is
// read again. Counts stay right.
func TestTheCacheIsBounded(t *testing.T) {
	c := newCached(t, "[{per: ip, rate: 1000/d}]")
	counters := NewCounters(Config{Store: c.store, Clock: c.clock.Now, CacheBytes: 1 << 19})
	small := counters.closed
	for i := range 3000 {
		counter, err := c.event.Counter(events.Features{"ip": fmt.Sprintf("10.0.%d.%d", i/250, i%250)})
		require.NoError(t, err)
		_, err = counters.Increment(t.Context(), 3, c.clock.Now().Add(-8*time.Second), counter)
		require.NoError(t, err)
		for _, window := range []time.Duration{24 * time.Hour, time.Hour, 10 * time.Second} {
			for range 2 {
				count, err := counters.Count(t.Context(), counter, window, time.Time{})
				require.NoError(t, err)
				require.Equal(t, int64(3), count.Count)
			}
		}
	}
	assert.Less(t, small.len(), 3000)
	assert.Positive(t, small.len())
}

// What this process has changed between two trips of a hit does not come back with what
// the hit had remembered before.
func TestAChangeBetweenTwoTripsIsSeen(t *testing.T) {
	c := newCached(t, "[{per: ip, rate: 50/d}]")
	for range 40 {
		c.increment(t, 0, 23*time.Hour+59*time.Minute)
	}
	for range 25 {
		c.increment(t, 0, 2*time.Second)
	}
	c.clock.Advance(2 * time.Minute)
	hour := func() int64 {
		count, err := c.counters[0].Count(t.Context(), c.counter, time.Hour, time.Time{})
		require.NoError(t, err)
		return count.Count
	}
	require.Equal(t, int64(25), hour())
	trips := 0
	c.store.Before = func() error {
		if trips++; trips == 1 {
			c.increment(t, 0, 32*time.Minute)
		}
		return nil
	}
	_, err := c.limiters[0].Hit(t.Context(), limiter.Hit{Event: c.event, Features: events.Features{"ip": "192.0.2.1"}, Cost: 1})
	require.NoError(t, err)
	require.Greater(t, c.store.Trips, 2, "the hit had to read its cover")
	c.store.Before = nil
	assert.Equal(t, int64(27), hour(), "with the increment, and the hit")
}

// An increment of a bucket that closes meanwhile is seen at once by its own process.
func TestABucketThatClosesUnderWay(t *testing.T) {
	c := newCached(t, "[{per: ip, rate: 50/d}]")
	count := func() int64 {
		count, err := c.counters[0].Count(t.Context(), c.counter, 10*time.Second, time.Time{})
		require.NoError(t, err)
		return count.Count
	}
	trips := 0
	c.store.Before = func() error {
		if trips++; trips == 1 {
			c.clock.Advance(100 * time.Millisecond) // the trip takes that long
			require.Zero(t, count())
		}
		return nil
	}
	c.clock.Advance(950 * time.Millisecond)
	c.increment(t, 0, 4*time.Second)
	c.store.Before = nil
	assert.Equal(t, int64(1), count())
}

// The cache's buckets of another process's making are used only if they are closed by the
// reader's own clock and grace.
func TestOpenBucketsAreNotBelieved(t *testing.T) {
	c := newCached(t, "[{per: ip, rate: 5/10s}]")
	counters := NewCounters(Config{Store: c.store, Clock: c.clock.Now, Grace: time.Second})
	patient := NewCounters(Config{Store: c.store, Clock: c.clock.Now, Grace: 20 * time.Second})
	patient.closed = counters.closed
	l, err := limiter.New(limiter.Config{Timeout: time.Second}, patient)
	require.NoError(t, err)
	hit := limiter.Hit{Event: c.event, Features: events.Features{"ip": "192.0.2.1"}, Cost: 1}
	admitted := 0
	hitFiveTimes := func(l *limiter.Limiter) {
		for range 5 {
			d, err := l.Hit(t.Context(), hit)
			require.NoError(t, err)
			if d.Allowed {
				admitted++
			}
		}
	}
	c.clock.Advance(5 * time.Second)
	_, err = counters.Count(t.Context(), c.counter, 10*time.Second, time.Time{})
	require.NoError(t, err)
	c.clock.Advance(-5 * time.Second) // another process's clock is behind
	hitFiveTimes(c.limiters[1])
	c.clock.Advance(5500 * time.Millisecond)
	hitFiveTimes(l)
	assert.Equal(t, 5, admitted)
}

// What is known of closed buckets is a hit of the cache, what is read of them is not.
func TestTheStatsOfTheCache(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		counters := NewCounters(Config{Store: storetest.NewSolo(time.Now), CacheBytes: smallCache})
		counter, err := testkit.Event(t, "[{per: ip, rate: 9/d}]").Counter(events.Features{"ip": "192.0.2.1"})
		require.NoError(t, err)
		count := func() {
			_, err := counters.Count(t.Context(), counter, 10*time.Second, time.Time{})
			require.NoError(t, err)
		}
		require.Equal(t, CacheStats{}, counters.CacheStats())
		count() // ten seconds, of which the last five are open: the grace is two
		require.Equal(t, CacheStats{0, 5}, counters.CacheStats())
		count()
		require.Equal(t, CacheStats{5, 5}, counters.CacheStats())
		time.Sleep(closedLife)
		count()
		require.Equal(t, CacheStats{5, 10}, counters.CacheStats(), "it is too old")
	})
}

// An explanation of a day descends to the seconds of a few events in a few round trips, and reads no empty bucket's
// children.
func TestAnExplanationTakesFewTrips(t *testing.T) {
	c := newCached(t, "[{per: ip, rate: 100/d}]")
	for i := range 6 {
		c.increment(t, 0, time.Duration(23-3*i)*time.Hour-time.Duration(7*i)*time.Minute)
	}
	before := c.store.Trips
	hit := limiter.Hit{Event: c.event, Features: events.Features{"ip": "192.0.2.1"}, Cost: 1}
	_, explained, err := c.limiters[0].Explain(t.Context(), hit, 5)
	require.NoError(t, err)
	require.Len(t, explained, 1)
	assert.Len(t, explained[0].Frees, 5)
	assert.LessOrEqual(t, c.store.Trips-before, 10)
}
