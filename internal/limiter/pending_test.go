package limiter_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"

	"github.com/counterd/counterd/internal/limiter"
)

// heldStore lets no trip go on before it is released.
type heldStore struct {
	*storetest.Solo
	stuck    atomic.Bool
	released chan struct{}
}

func newHeldStore() *heldStore {
	return &heldStore{Solo: storetest.NewSolo(time.Now), released: make(chan struct{})}
}

func (s *heldStore) Do(ctx context.Context, ops ...*store.Op) {
	store.SideBySide(ops, func(op *store.Op) {
		if storetest.IsTrip(op) && s.stuck.Load() {
			<-s.released
		}
		s.Solo.Do(ctx, op)
	})
}

// overloaded is a limiter of whose bound all is taken by hits that wait for the store.
type overloaded struct {
	t       *testing.T
	l       *limiter.Limiter
	store   *heldStore
	local   *storetest.Solo
	reports []error
	waiting sync.WaitGroup
	// onDecision, if not nil, is called with each decision.
	onDecision func(context.Context, limiter.Hit, *events.Decision, limiter.Call)
}

const testPending = 3

func newOverloaded(t *testing.T) *overloaded {
	o := &overloaded{t: t, store: newHeldStore(), local: storetest.NewSolo(time.Now)}
	var err error
	o.l, err = limiter.New(limiter.Config{Local: localEngines(o.local, nil), Timeout: time.Second, MaxPending: testPending,
		OnDecision: func(ctx context.Context, h limiter.Hit, d *events.Decision, call limiter.Call) {
			if o.onDecision != nil {
				o.onDecision(ctx, h, d, call)
			}
		},
		OnStoreError: func(err error) { o.reports = append(o.reports, err) }}, hierarchy.NewCounters(hierarchy.Config{Store: o.store}))
	require.NoError(t, err)
	return o
}

// fill has hits wait for the store, as many as may. The trips are two: the second and
// third hit are on one counter, and one of them waits in line.
func (o *overloaded) fill() {
	o.store.stuck.Store(true)
	event := testkit.Event(o.t, "[{per: ip, rate: 100/d}]")
	for i := range testPending {
		o.waiting.Go(func() {
			d, err := o.l.Hit(context.Background(), hitOn(event, min(i, 1)))
			assert.NoError(o.t, err)
			assert.True(o.t, d.Allowed)
			assert.False(o.t, d.Limits[0].Failed)
		})
		synctest.Wait()
	}
	require.Equal(o.t, int64(testPending), o.l.QueueStats().Pending)
}

func (o *overloaded) release() {
	close(o.store.released)
	o.store.stuck.Store(false)
	o.waiting.Wait()
	assert.Zero(o.t, o.l.QueueStats().Pending)
}

// atOnce calls do, and sees that no time passes and nothing is sent meanwhile.
func (o *overloaded) atOnce(do func()) {
	o.t.Helper()
	began, trips := time.Now(), o.store.Trips
	do()
	assert.Zero(o.t, time.Since(began))
	assert.Equal(o.t, trips, o.store.Trips)
}

func hitOn(event *events.Event, i int) limiter.Hit {
	return limiter.Hit{event, events.Features{"ip": fmt.Sprintf("192.0.2.%d", i)}, 1, 0, nil}
}

// A hit beyond the bound is decided at once, as its rule has it for a store that fails.
func TestOverloadIsDecidedByOnError(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newOverloaded(t)
		o.fill()
		hit := func(onError string) (d events.Decision) {
			o.atOnce(func() {
				var err error
				d, err = o.l.Hit(t.Context(), hitOn(testkit.Event(t, "[{per: ip, rate: [2/m, 2/d], on_error: "+onError+"}]"), 9))
				require.NoError(t, err)
			})
			require.True(t, d.Limits[0].Failed)
			require.Equal(t, onError, d.Limits[0].OnError.String())
			return d
		}
		for range 5 {
			assert.True(t, hit("allow").Allowed)
			d := hit("deny")
			assert.False(t, d.Allowed)
			assert.True(t, d.Unavailable)
		}
		for i := range 5 {
			d := hit("local")
			assert.Equal(t, i < 2, d.Allowed)
			assert.False(t, d.Unavailable)
			assert.Equal(t, int64(min(i+1, 2)), d.Limits[0].Count)
		}
		assert.Equal(t, engine.QueueStats{Pending: testPending, Refused: 15}, o.l.QueueStats())
		require.Len(t, o.reports, 15)
		for _, err := range o.reports {
			assert.ErrorIs(t, err, engine.ErrOverload)
			assert.ErrorIs(t, err, engine.ErrStore)
		}
		o.release()
		event := testkit.Event(t, "[{per: ip, rate: 2/d, on_error: deny}]")
		for i, allowed := range []bool{true, true, false} {
			d, err := o.l.Hit(t.Context(), hitOn(event, 9))
			require.NoError(t, err)
			assert.Equal(t, allowed, d.Allowed, "%d: nothing was added meanwhile", i)
		}
	})
}

// What can never fit, and what is on a deny list, is denied in any case.
func TestOverloadChangesNothingThatNeedsNoStore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newOverloaded(t)
		o.fill()
		event := testkit.Event(t, "[{per: ip, rate: 2/m, deny: [192.0.2.7]}]")
		for _, h := range []limiter.Hit{hitOn(event, 7), {event, events.Features{"ip": "192.0.2.8"}, 3, 0, nil}} {
			o.atOnce(func() {
				d, err := o.l.Hit(t.Context(), h)
				require.NoError(t, err)
				assert.False(t, d.Allowed)
				assert.False(t, d.Unavailable)
				assert.Equal(t, events.Never, d.RetryAfter)
			})
		}
		_, err := o.l.Hit(t.Context(), limiter.Hit{event, events.Features{"ip": "x"}, 1, 0, nil})
		assert.ErrorIs(t, err, events.ErrInvalid)
		o.release()
	})
}

// A flood of denied hits costs no trip, and is denied under overload, too. When the
// denial is over the next one looks before it adds, whatever was admitted meanwhile.
func TestDenialsAreRememberedUnderOverload(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newOverloaded(t)
		event := testkit.Event(t, "[{per: ip, rate: 2/m, on_error: allow}]")
		two := testkit.Event(t, "[{per: ip, rate: 2/m, on_error: allow}, {per: user, rate: 9/m, on_error: deny}]")
		both := limiter.Hit{two, events.Features{"ip": "192.0.2.9", "user": "a"}, 1, 0, nil}
		hit := func() bool {
			d, err := o.l.Hit(t.Context(), hitOn(event, 9))
			require.NoError(t, err)
			return d.Allowed
		}
		for _, want := range []bool{true, true, false} {
			require.Equal(t, want, hit())
		}
		o.fill()
		o.atOnce(func() {
			for range 100 {
				require.False(t, hit())
			}
			results, err := o.l.Hits(t.Context(), []limiter.Hit{hitOn(event, 9), hitOn(event, 8)})
			require.NoError(t, err)
			assert.False(t, results[0].Decision.Allowed)
			assert.False(t, results[0].Decision.Limits[0].Failed, "from memory")
			assert.True(t, results[1].Decision.Allowed)
			assert.True(t, results[1].Decision.Limits[0].Failed)
			d, err := o.l.Hit(t.Context(), both)
			require.NoError(t, err)
			assert.False(t, d.Allowed)
			assert.False(t, d.Unavailable, "a denial outranks a refusal")
		})
		o.release()
		time.Sleep(1100 * time.Millisecond)
		o.store.released = make(chan struct{})
		o.fill()
		o.atOnce(func() { require.True(t, hit(), "by on_error: the denial is over") })
		o.release()
		added := o.store.Sum(counterOf(t, event, 9).ID(), uint8(hierarchy.Second))
		o.store.RolledBack = false
		require.False(t, hit())
		assert.Equal(t, added, o.store.Sum(counterOf(t, event, 9).ID(), uint8(hierarchy.Second)))
		assert.False(t, o.store.RolledBack, "it has looked")
	})
}

func counterOf(t *testing.T, event *events.Event, i int) events.Counter {
	counter, err := event.Counter(hitOn(event, i).Features)
	require.NoError(t, err)
	return counter
}

// A check beyond the bound is one of a store that fails.
func TestOverloadOfChecks(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newOverloaded(t)
		o.fill()
		o.atOnce(func() {
			d, err := o.l.Check(t.Context(), hitOn(testkit.Event(t, "[{per: ip, rate: 2/m, on_error: deny}]"), 9))
			require.NoError(t, err)
			assert.True(t, d.Unavailable)
		})
		o.release()
	})
}

// A batch waits with all of its hits, or with none. One of more hits than may ever wait
// goes alone.
func TestABatchCountsItsHits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newOverloaded(t)
		event := testkit.Event(t, "[{per: ip, rate: 100/d, on_error: deny}]")
		batch := func(n int) (unavailable int) {
			hits := make([]limiter.Hit, n)
			for i := range hits {
				hits[i] = hitOn(event, i)
			}
			results, err := o.l.Hits(t.Context(), hits)
			require.NoError(t, err)
			for _, result := range results {
				require.NoError(t, result.Err)
				if result.Decision.Unavailable {
					unavailable++
				} else {
					require.True(t, result.Decision.Allowed)
				}
			}
			return unavailable
		}
		require.Zero(t, batch(testPending+5))
		o.store.stuck.Store(true)
		o.waiting.Go(func() { assert.Zero(t, batch(testPending-1)) })
		synctest.Wait()
		o.atOnce(func() { assert.Equal(t, 2, batch(2), "one is too many, so none") })
		o.waiting.Go(func() { assert.Zero(t, batch(1), "there is room for one") })
		synctest.Wait()
		assert.Equal(t, engine.QueueStats{Pending: testPending, Refused: 2}, o.l.QueueStats())
		o.atOnce(func() { assert.Equal(t, 1, batch(1)) })
		o.release()
		o.store.stuck.Store(false)
		require.Zero(t, batch(testPending+5))
	})
}

// panicStore panics.
type panicStore struct{ *storetest.Solo }

func (s panicStore) Do(ctx context.Context, ops ...*store.Op) {
	if storetest.IsTrip(ops[0]) {
		panic("out of order")
	}
	s.Solo.Do(ctx, ops...)
}

// Whatever becomes of waiting hits, they give their memory budget back.
func TestRoomIsGivenBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		event := testkit.Event(t, "[{per: ip, rate: 3/m, on_error: deny}]")
		for _, store := range []store.Store{panicStore{storetest.NewSolo(time.Now)}, downStore{storetest.NewSolo(time.Now)}, storetest.NewSolo(time.Now)} {
			l, err := limiter.New(limiter.Config{}, hierarchy.NewCounters(hierarchy.Config{Store: store}))
			require.NoError(t, err)
			var running sync.WaitGroup
			for i := range 30 {
				running.Go(func() {
					defer func() { _ = recover() }()
					switch h := hitOn(event, i%3); i % 5 {
					case 0:
						_, _ = l.Check(t.Context(), h)
					case 1:
						_, _ = l.Hits(t.Context(), []limiter.Hit{h, h})
					default:
						_, _ = l.Hit(t.Context(), h)
					}
				})
			}
			running.Wait()
			assert.Equal(t, engine.QueueStats{}, l.QueueStats())
		}
	})
}

// Exactness does not depend on the bound: of many hits at once, most of them refused,
// no more are admitted than fit, and only those stay counted.
func TestOverloadIsExact(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := storetest.NewSolo(time.Now)
		store.Delay = time.Millisecond
		l, err := limiter.New(limiter.Config{Timeout: time.Second, MaxPending: 8}, hierarchy.NewCounters(hierarchy.Config{Store: store}))
		require.NoError(t, err)
		event := testkit.Event(t, "[{per: ip, rate: 40/d, on_error: deny}]")
		var admitted [2]atomic.Int64
		var refused atomic.Int64
		var running sync.WaitGroup
		for i := range 1000 {
			running.Go(func() {
				time.Sleep(time.Duration(i/25) * time.Millisecond)
				d, err := l.Hit(t.Context(), hitOn(event, i%2))
				switch {
				case !assert.NoError(t, err):
				case d.Allowed:
					admitted[i%2].Add(1)
				case d.Unavailable:
					refused.Add(1)
				}
			})
		}
		running.Wait()
		assert.Positive(t, refused.Load())
		assert.Equal(t, engine.QueueStats{Pending: 0, Refused: refused.Load()}, l.QueueStats())
		for i := range 2 {
			assert.Positive(t, admitted[i].Load())
			assert.Equal(t, admitted[i].Load(), store.Sum(counterOf(t, event, i).ID(), uint8(hierarchy.Day)))
			for range 50 {
				d, err := l.Hit(t.Context(), hitOn(event, i))
				require.NoError(t, err)
				if d.Allowed {
					admitted[i].Add(1)
				}
			}
			assert.Equal(t, int64(40), admitted[i].Load())
		}
	})
}

func TestMaxPendingIsChecked(t *testing.T) {
	_, err := limiter.New(limiter.Config{MaxPending: -1}, hierarchy.NewCounters(hierarchy.Config{Store: storetest.NewSolo(time.Now)}))
	assert.ErrorContains(t, err, "MaxPending is negative")
}
