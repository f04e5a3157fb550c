package limiter_test

import (
	"context"
	"sync"
	"sync/atomic"
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

// What exceeds a limit for good, as after a reload that lowered it, is a
// denial after a few looks.
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
	assert.LessOrEqual(t, store.trips, 2+20+3, "add and roll back, looks, the search")
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

// A final denial holds for its second, also when increments add to the overshoot: of the hits of
// a second the first waits. Closed buckets hold no transient adds, and no hit waits for them.
func TestAnOverfullLimitDeniesAtOnceTheSecondTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newOverfull(t)
		const closed = 5 * time.Second // twice the grace, and the second of the increment
		for began := time.Now(); time.Since(began) < closed; time.Sleep(time.Second) {
			o.increment(t, 30)
			require.LessOrEqual(t, o.denied(t), limiter.DefaultTimeout*3/4)
			for range 3 {
				o.increment(t, 30)
				require.Zero(t, o.denied(t))
			}
		}
		for range 70 {
			require.Zero(t, o.denied(t))
			o.increment(t, 3)
			require.Zero(t, o.denied(t))
			time.Sleep(time.Second)
		}
	})
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

// One less than a limit allows in closed buckets is no reason to deny.
func TestClosedBucketsThatLeaveRoomDoNotDeny(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newOverfull(t)
		o.increment(t, 9)
		time.Sleep(5 * time.Second)
		time.AfterFunc(limiter.DefaultTimeout/4, o.transient(t, 7))
		d, err := o.limiter.Hit(t.Context(), hitOf(o.event, 1, o.who))
		require.NoError(t, err)
		require.True(t, d.Allowed)
	})
}

// Increments that exceed a limit which was full change nothing in that second.
func TestAFullLimitThatIncrementsExceedDeniesAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newOverfull(t)
		o.increment(t, 10)
		require.Zero(t, o.denied(t))
		o.increment(t, 1)
		require.Zero(t, o.denied(t))
	})
}

// A cached denial says nothing once the windows hold its events no more: the overshoot that
// follows may be transient.
func TestADenialIsForgottenWithItsWindow(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newOverfull(t)
		o.increment(t, 10)
		require.Zero(t, o.denied(t)) // by the minute, for as long as it has these
		time.Sleep(59 * time.Second)
		o.increment(t, 5)
		require.Zero(t, o.denied(t))
		time.Sleep(2 * time.Second)
		o.increment(t, 6)
		require.Positive(t, o.denied(t), "the minute has 11, all of them new")
	})
}

// Increments grow an overshoot, and it counts as one that does not shrink: no hit waits until the
// timeout.
func TestALimitThatIsExceededMoreAndMoreDenies(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newOverfull(t)
		o.increment(t, 30)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			for ctx.Err() == nil {
				o.increment(t, 1)
				time.Sleep(time.Millisecond)
			}
		})
		took := o.denied(t)
		require.GreaterOrEqual(t, took, limiter.DefaultTimeout/2)
		require.Less(t, took, limiter.DefaultTimeout*3/4)
		for range 5 {
			time.Sleep(time.Millisecond)
			require.Zero(t, o.denied(t), "it is settled")
		}
		stop()
		running.Wait()
	})
}

// A hit that had no time to look again has not found out what stays.
func TestADenialThatCameLateProvesNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newOverfull(t)
		o.increment(t, 30)
		o.store.after = func(string, []uint64) error { time.Sleep(limiter.DefaultTimeout); return nil }
		require.GreaterOrEqual(t, o.denied(t), limiter.DefaultTimeout)
		o.store.after = nil
		require.GreaterOrEqual(t, o.denied(t), limiter.DefaultTimeout/2)
		require.Zero(t, o.denied(t))
	})
}

// A hit that the timeout denied, under an overshoot that shrank all the while, has not found out
// what stays: the next hit does.
func TestAnOvershootThatShrinksProvesNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newOverfull(t)
		o.increment(t, 21)
		var leaves []func()
		for range 8 {
			leaves = append(leaves, o.transient(t, 10))
		}
		var running sync.WaitGroup
		running.Go(func() {
			for _, leave := range leaves {
				time.Sleep(limiter.DefaultTimeout / 6)
				leave()
			}
		})
		require.GreaterOrEqual(t, o.denied(t), limiter.DefaultTimeout)
		running.Wait()
		require.GreaterOrEqual(t, o.denied(t), limiter.DefaultTimeout/2)
		require.Zero(t, o.denied(t))
	})
}

// A cached denial does not make transient adds count later: a hit is admitted under contention
// when what filled the limit before has left the window.
func TestACachedDenialProvesNoOvershoot(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newOverfull(t)
		o.increment(t, 11)
		require.GreaterOrEqual(t, o.denied(t), limiter.DefaultTimeout/2)
		time.Sleep(59 * time.Second)
		leave := o.transient(t, 10)
		require.Zero(t, o.denied(t), "by what stood there before")
		leave()
		time.Sleep(2 * time.Second)
		leave = o.transient(t, 11)
		time.AfterFunc(limiter.DefaultTimeout/4, leave)
		d, err := o.limiter.Hit(t.Context(), hitOf(o.event, 1, o.who))
		require.NoError(t, err)
		require.True(t, d.Allowed, "the overshoot is transient")
	})
}

// One transient overshoot after another proves nothing, where a hit has seen room in between.
func TestAnOvershootAfterAnotherProvesNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newOverfull(t)
		var comes atomic.Pointer[func()] // before the next hit adds
		o.store.before = func(_ string, adds []uint64) error {
			if len(adds) > 0 {
				if come := comes.Swap(nil); come != nil {
					(*come)()
				}
			}
			return nil
		}
		const half = limiter.DefaultTimeout / 2
		leave := o.transient(t, 30)
		time.AfterFunc(half*2/5, func() {
			come := func() { time.AfterFunc(half*9/10, o.transient(t, 40)) }
			comes.Store(&come)
			leave()
		})
		d, err := o.limiter.Hit(t.Context(), hitOf(o.event, 1, o.who))
		require.NoError(t, err)
		require.True(t, d.Allowed)
	})
}

// An overshoot of one limit and then one of another, of more, are two.
func TestAnOvershootOfAnotherLimitProvesNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newOverfull(t)
		o.event = testkit.Event(t, "[{per: ip, rate: 10/m}, {per: user, rate: 20/m}]")
		o.who["user"] = "a"
		applied, err := o.event.Apply(nil, o.who)
		require.NoError(t, err)
		at := func(i int) *overfull { return &overfull{store: o.store, counter: applied[i].Counter} }
		const half = limiter.DefaultTimeout / 2
		leave := at(0).transient(t, 30)
		time.AfterFunc(half/2, func() {
			after := at(1).transient(t, 40)
			leave()
			time.AfterFunc(half*9/10, after)
		})
		d, err := o.limiter.Hit(t.Context(), hitOf(o.event, 1, o.who))
		require.NoError(t, err)
		require.True(t, d.Allowed)
	})
}

// An overshoot from which hits leave while others come is not believed beyond its second.
func TestAnOvershootThatComesAndGoesIsForgottenSoon(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newOverfull(t)
		inside := &overfull{store: &hookedStore{Store: o.store.Store}, counter: o.counter}
		stay := inside.transient(t, 20)
		var leave func()
		// Some leave, or come back, before each look.
		o.store.before = func(_ string, adds []uint64) error {
			switch {
			case len(adds) > 0:
			case leave == nil:
				leave = inside.transient(t, 10)
			default:
				leave()
				leave = nil
			}
			return nil
		}
		require.GreaterOrEqual(t, o.denied(t), limiter.DefaultTimeout/2)
		o.store.before = nil
		if leave != nil {
			leave()
		}
		stay()
		time.Sleep(2 * time.Second)
		time.AfterFunc(limiter.DefaultTimeout/4, inside.transient(t, 11))
		d, err := o.limiter.Hit(t.Context(), hitOf(o.event, 1, o.who))
		require.NoError(t, err)
		require.True(t, d.Allowed)
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
