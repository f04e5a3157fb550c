package limiter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/memcache"
)

// What exceeds a limit for good, as after a reload that lowered it, is a denial by the first check.
func TestAnOverfullLimitDenies(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		testAnOverfullLimitDenies(t)
	})
}

func testAnOverfullLimitDenies(t *testing.T) {
	store := &countingStore{Store: memcache.NewEmbedded(memcache.EmbeddedConfig{})}
	l, err := limiter.New(limiter.Config{}, hierarchy.NewCounters(hierarchy.Config{Store: store}))
	require.NoError(t, err)
	who := events.Features{"ip": "203.0.113.9"}
	_, err = l.Hit(t.Context(), hitOf(testkit.Event(t, "[{per: ip, rate: [100/m, 100/h]}]"), 90, who))
	assert.NoError(t, err)
	store.trips = 0
	began := time.Now()
	d, err := l.Hit(t.Context(), hitOf(testkit.Event(t, "[{per: ip, rate: [10/m, 20/h]}]"), 1, who))
	assert.NoError(t, err)
	assert.False(t, d.Allowed)
	assert.Equal(t, 3600*time.Second, d.RetryAfter)
	assert.Less(t, time.Since(began), limiter.DefaultTimeout)
	assert.LessOrEqual(t, store.trips, 6, "the add, the edges of windows, the undo, the check, and the search")
}

// overfull is a limiter, and counters beside it, of features whose limits increments exceed.
type overfull struct {
	store    *hookedStore
	limiter  *limiter.Limiter
	counters *hierarchy.Counters
	event    *events.Event
	who      events.Features
	counter  events.Counter
}

func newOverfull(t *testing.T) *overfull {
	t.Helper()
	store := &hookedStore{Store: memcache.NewEmbedded(memcache.EmbeddedConfig{})}
	counters := hierarchy.NewCounters(hierarchy.Config{Store: store, CacheBytes: 1 << 20})
	l, err := limiter.New(limiter.Config{}, counters)
	require.NoError(t, err)
	o := &overfull{store: store, limiter: l, counters: counters}
	o.who = events.Features{"ip": "203.0.113.9"}
	o.limit(t, "[{per: ip, rate: [10/m, 20/h]}]")
	return o
}

func (o *overfull) limit(t *testing.T, limits string) {
	t.Helper()
	o.event = testkit.Event(t, limits)
	applied, err := o.event.Apply(nil, o.who)
	require.NoError(t, err)
	o.counter = applied[0].Counter
}

func (o *overfull) increment(t *testing.T, by int64) {
	t.Helper()
	_, err := o.counters.Increment(t.Context(), by, time.Time{}, o.counter)
	require.NoError(t, err)
}

// denied returns how long a hit waited to be denied.
func (o *overfull) denied(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	d, err := o.limiter.Hit(t.Context(), hitOf(o.event, 1, o.who))
	require.NoError(t, err)
	require.False(t, d.Allowed)
	return time.Since(began)
}

// What closed buckets hold makes a denial final, whatever open ones hold. A reset by another
// process is seen.
func TestClosedBucketsDenyAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, limits := range []string{
			"[{per: ip, rate: 10/m}]", "[{per: ip, rate: [20/10s, 10/m]}]", "[{per: ip, rate: 10/h}]",
			"[{per: ip, rate: 10/d}]", "[{per: ip, rate: 10/h, precision: minute}]",
		} {
			o := newOverfull(t)
			o.limit(t, limits)
			o.increment(t, 10)
			time.Sleep(70 * time.Second) // also the minute is closed
			if o.event.Rules[0].Limits[0].Window == time.Minute || len(o.event.Rules[0].Limits) > 1 {
				o.increment(t, 10)
				time.Sleep(5 * time.Second)
			}
			leave := o.transient(t, 7)
			require.Zero(t, o.denied(t), limits)
			leave()
			other := hierarchy.NewCounters(hierarchy.Config{Store: o.store})
			require.NoError(t, other.Reset(t.Context(), o.counter))
			time.Sleep(time.Second)
			d, err := o.limiter.Hit(t.Context(), hitOf(o.event, 1, o.who))
			require.NoError(t, err)
			require.True(t, d.Allowed, limits)
		}
	})
}

// A limit that increments exceed, more and more, denies at once.
func TestAFullLimitThatIncrementsExceedDeniesAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newOverfull(t)
		o.increment(t, 10)
		require.Zero(t, o.denied(t))
		for range 70 {
			o.increment(t, 3)
			require.Zero(t, o.denied(t))
			time.Sleep(time.Second)
		}
	})
}

// transient adds as hits of other processes do that are denied: until they leave.
func (o *overfull) transient(t *testing.T, count int64) (leave func()) {
	t.Helper()
	var adds []uint64
	var expires []int64
	for bucket := range hierarchy.BucketsOf(o.counter, time.Now().Unix()) {
		adds = append(adds, bucket.ID())
		expires = append(expires, time.Now().Add(24*time.Hour).Unix())
	}
	landed, err := storetest.Trip(t.Context(), o.store, o.counter.ID(), count, adds, expires, nil, make([]int64, len(adds)))
	require.NoError(t, err)
	return func() {
		assert.NoError(t, storetest.RollBack(t.Context(), o.store, o.counter.ID(), count, adds, landed))
	}
}
