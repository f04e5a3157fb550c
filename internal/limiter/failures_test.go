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
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"

	"github.com/counterd/counterd/internal/limiter"
)

// A check asks the store, whether a denial is remembered or not.
func TestACheckAsks(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	store := storetest.NewSolo(clock.Now)
	h := limiter.Hit{testkit.Event(t, "[{per: ip, rate: 1/m}]"), events.Features{"ip": "192.0.2.1"}, 1, 0, nil}
	hitting, checking := newTestLimiter(t, store, clock.Now), newTestLimiter(t, store, clock.Now)
	for _, want := range []bool{true, false} {
		d, err := hitting.Hit(t.Context(), h)
		require.NoError(t, err)
		require.Equal(t, want, d.Allowed)
		for _, l := range []*limiter.Limiter{hitting, checking} {
			check, err := l.Check(t.Context(), h)
			require.NoError(t, err)
			assert.False(t, check.Allowed)
			assert.Equal(t, int64(1), check.Limits[0].Count)
		}
	}
	clear(store.Of)
	check, err := hitting.Check(t.Context(), h)
	require.NoError(t, err)
	assert.True(t, check.Allowed, "a reset is seen at once")
}

// Where one counter's server fails, and its rule admits then, the others are still
// counted: also by hits that look before they add.
func TestAHalfFailedHitIsCounted(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	store := storetest.NewSolo(clock.Now)
	event := testkit.Event(t, "[{per: ip, rate: 2/s, on_error: deny}, {per: user, rate: 1000/m, on_error: allow}]")
	features := events.Features{"ip": "192.0.2.1", "user": "a"}
	user, err := event.Counter(events.Features{"user": "a"})
	require.NoError(t, err)
	half := &halfStore{Solo: store, down: user.ID()}
	l := newTestLimiter(t, half, clock.Now)
	for second := range 3 {
		admitted := 0
		for range 5 {
			d, err := l.Hit(t.Context(), limiter.Hit{event, features, 1, 0, nil})
			require.NoError(t, err)
			if d.Allowed {
				admitted++
				assert.True(t, d.Limits[1].Failed)
			}
		}
		assert.Equal(t, 2, admitted, second)
		clock.Advance(time.Second)
	}
}

// What can never fit is denied without a store.
func TestWhatNeverFitsIsDeniedWithoutAStore(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	store := storetest.NewSolo(clock.Now)
	store.Before = func() error { return errDown }
	l := newTestLimiter(t, store, clock.Now)
	h := limiter.Hit{testkit.Event(t, "[{per: ip, rate: 2/m}]"), events.Features{"ip": "192.0.2.1"}, 2, 0, nil}
	d, err := l.Hit(t.Context(), h)
	require.NoError(t, err)
	require.True(t, d.Allowed, "on_error: allow")
	h.Cost = 3
	d, err = l.Hit(t.Context(), h)
	require.NoError(t, err)
	assert.False(t, d.Allowed)
	assert.False(t, d.Unavailable)
	assert.Equal(t, events.Never, d.RetryAfter)
}

// A denied hit that is counted says what its counter holds behind all hits of its batch, also if another of its
// counters fails.
func TestADeniedHitIsBehindItsBatch(t *testing.T) {
	for _, algorithm := range []string{"sliding-window", "fixed-window"} {
		clock := testkit.NewClock(time.Unix(1_700_000_040, 0)) // a minute turns
		solo := storetest.NewSolo(clock.Now)
		shared := &otherStore{solo}
		l := newTestLimiter(t, shared, clock.Now)
		event := testkit.Event(t, "[{per: ip, rate: 3/m, count: all, algorithm: "+algorithm+"}, {per: user, rate: 0/m}, {per: host, rate: 9/m}]")
		host, err := event.Counter(events.Features{"host": "h"})
		require.NoError(t, err)
		shared.Store = &halfStore{solo, host.ID()}
		one := events.Features{"ip": "192.0.2.1"}
		results, err := l.Hits(t.Context(), []limiter.Hit{{event, events.Features{"ip": one["ip"], "user": "a", "host": "h"}, 1, 0, nil}, {event, one, 1, 0, nil}, {event, one, 1, 0, nil}})
		require.NoError(t, err)
		d := results[0].Decision
		require.False(t, d.Allowed)
		require.True(t, d.Limits[2].Failed)
		assert.True(t, d.Limits[0].Allowed)
		assert.Equal(t, []any{int64(3), time.Minute}, []any{d.Limits[0].Count, d.Limits[0].Reset}, algorithm)
	}
}

// On its own counters, too, a process that decides many hits at once admits the
// limit, also when they have looked for room first.
func TestLocalCountersKeepTheLimit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		down, local := storetest.NewSolo(time.Now), storetest.NewSolo(time.Now)
		down.Before = func() error { return errDown }
		local.Delay = time.Millisecond
		shared := &otherStore{storetest.NewSolo(time.Now)}
		l, err := limiter.New(limiter.Config{Local: localEngines(local, nil)}, hierarchy.NewCounters(hierarchy.Config{Store: shared}))
		require.NoError(t, err)
		h := limiter.Hit{testkit.Event(t, "[{per: ip, rate: 5/s, on_error: local}]"), events.Features{"ip": "192.0.2.1"}, 1, 0, nil}
		for range 10 {
			_, err := l.Hit(t.Context(), h)
			require.NoError(t, err)
		}
		time.Sleep(1100 * time.Millisecond) // the denial is over, and one has to look
		shared.Store = down
		var admitted atomic.Int64
		var running sync.WaitGroup
		for range 64 {
			running.Go(func() {
				d, err := l.Hit(t.Context(), h)
				if assert.NoError(t, err) && d.Allowed {
					admitted.Add(1)
				}
			})
		}
		running.Wait()
		assert.Equal(t, int64(5), admitted.Load())
	})
}

// A store that does not answer, until the time for it is over, leaves time to ask this
// process's own counters.
func TestLocalCountersAfterATimeout(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		local := farStore{storetest.NewSolo(time.Now), time.Millisecond} // which minds deadlines
		l, err := limiter.New(limiter.Config{Local: localEngines(local, nil)}, hierarchy.NewCounters(hierarchy.Config{Store: downStore{storetest.NewSolo(time.Now)}}))
		require.NoError(t, err)
		h := limiter.Hit{testkit.Event(t, "[{per: ip, rate: [2/s, 2/h], on_error: local}]"), events.Features{"ip": "192.0.2.1"}, 1, 0, nil}
		for i := range 4 {
			d, err := l.Hit(t.Context(), h)
			require.NoError(t, err)
			assert.Equal(t, i < 2, d.Allowed)
			assert.False(t, d.Unavailable)
			assert.True(t, d.Limits[0].Failed)
		}
	})
}

// So it does for a hit that looks for room first, since one before was denied.
func TestLocalCountersAfterALook(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		shared := &otherStore{storetest.NewSolo(time.Now)}
		local := farStore{storetest.NewSolo(time.Now), time.Millisecond} // which minds deadlines
		l, err := limiter.New(limiter.Config{Local: localEngines(local, nil)}, hierarchy.NewCounters(hierarchy.Config{Store: shared}))
		require.NoError(t, err)
		h := limiter.Hit{testkit.Event(t, "[{per: ip, rate: 2/s, on_error: local}]"), events.Features{"ip": "192.0.2.1"}, 1, 0, nil}
		for i := range 3 {
			d, err := l.Hit(t.Context(), h)
			require.NoError(t, err)
			require.Equal(t, i < 2, d.Allowed)
		}
		time.Sleep(1100 * time.Millisecond)
		shared.Store = downStore{storetest.NewSolo(time.Now)}
		d, err := l.Hit(t.Context(), h)
		require.NoError(t, err)
		assert.True(t, d.Allowed)
		assert.False(t, d.Unavailable)
		assert.True(t, d.Limits[0].Failed)
	})
}

// halfStore fails for one counter.
type halfStore struct {
	*storetest.Solo
	down string
}

func (s *halfStore) Do(ctx context.Context, ops ...*store.Op) {
	store.SideBySide(ops, func(op *store.Op) {
		if op.Err = errDown; op.Counter != s.down {
			s.Solo.Do(ctx, op)
		}
	})
}

// A hit that adds to the shared store in part, and then to the local one, which denies it, is
// rolled back in each by what that one acknowledged.
func TestEachStoreRollsBackWhatItAcknowledged(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	shared, local := storetest.NewSolo(clock.Now), storetest.NewSolo(clock.Now)
	h := limiter.Hit{testkit.Event(t, "[{per: ip, rate: 1/m, on_error: local}]"), events.Features{"ip": "192.0.2.1"}, 1, 0, nil}
	acknowledged := store.Receipt{List: 7, Acknowledged: [store.MaxReplicas]uint32{0, 2}}
	var rolledBack []store.Receipt
	partly := partlyStore{shared, func(op *store.Op) {
		switch op.Kind() {
		case store.Add:
			op.Receipt = acknowledged
		case store.Subtract:
			rolledBack = append(rolledBack, op.Receipt)
		}
	}}
	l, err := limiter.New(limiter.Config{Local: localEngines(local, clock.Now)}, hierarchy.NewCounters(hierarchy.Config{Store: partly, Clock: clock.Now}))
	require.NoError(t, err)
	for _, want := range []bool{true, false} {
		d, err := l.Hit(t.Context(), h)
		require.NoError(t, err)
		require.Equal(t, want, d.Allowed)
	}
	assert.Equal(t, []store.Receipt{acknowledged}, rolledBack)
	counter, err := h.Event.Counter(h.Features)
	require.NoError(t, err)
	assert.Equal(t, int64(1), local.Sum(counter.ID(), uint8(hierarchy.Minute)))
}

// partlyStore fails, and says how much it has acknowledged.
type partlyStore struct {
	*storetest.Solo
	do func(*store.Op)
}

func (s partlyStore) Do(_ context.Context, ops ...*store.Op) {
	for _, op := range ops {
		op.Err = errDown
		s.do(op)
	}
}

// addHook calls before the first add.
type addHook struct {
	store.Store
	before func()
}

func (s *addHook) Do(ctx context.Context, ops ...*store.Op) {
	if before := s.before; before != nil && ops[0].Kind() == store.Add {
		s.before = nil
		before()
	}
	s.Store.Do(ctx, ops...)
}

// What a look has read of open buckets is read again after the adds, with a cache and without.
func TestALookIsNotBelievedAfterwards(t *testing.T) {
	for _, bytes := range []int{smallCache, -1} {
		clock := testkit.NewClock(time.Unix(1_700_000_000, 700e6))
		solo := storetest.NewSolo(clock.Now)
		hook := &addHook{Store: solo}
		event := testkit.Event(t, "[{per: ip, rate: 2/10s}]")
		admitted := 0
		hit := func(l *limiter.Limiter) {
			d, err := l.Hit(t.Context(), limiter.Hit{event, someUser, 1, 0, nil})
			require.NoError(t, err)
			if d.Allowed {
				admitted++
			}
		}
		open := func(st store.Store, ahead time.Duration) *limiter.Limiter {
			clock := func() time.Time { return clock.Now().Add(ahead) }
			l, err := limiter.New(limiter.Config{Timeout: time.Second}, hierarchy.NewCounters(hierarchy.Config{Store: st, Clock: clock, CacheBytes: bytes}))
			require.NoError(t, err)
			return l
		}
		looks, other := open(hook, 0), open(solo, 400*time.Millisecond)
		for range 3 { // so that it looks first the next time
			hit(looks)
		}
		clock.Advance(20 * time.Second)
		admitted = 0
		hook.before = func() { hit(other); hit(other) }
		hit(looks)
		assert.Equal(t, 2, admitted, "%d bytes", bytes)
	}
}
