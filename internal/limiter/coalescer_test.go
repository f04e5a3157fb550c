package limiter_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
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

// Coalesced hits get the verdicts that they get one by one, and leave the same behind.
func TestTogetherIsAsOneByOne(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	clock := testkit.NewClock(time.Time{})
	admitted, denied, mixed := 0, 0, 0
	for _, limits := range testkit.Limits {
		event := testkit.Event(t, limits)
		for range testkit.Times(8) {
			store := storetest.NewSolo(clock.Now)
			l := newTestLimiter(t, store, clock.Now)
			for range 12 {
				clock.Advance(testkit.Step(rng))
				var hits []limiter.Hit
				for range 1 + rng.IntN(12) {
					features := events.Features{"ip": testkit.Pick(rng, "192.0.2.1", "192.0.2.1", "192.0.2.2"), "user": testkit.Pick(rng, "a", "a", "b")}
					hits = append(hits, limiter.Hit{event, features, testkit.Pick[int64](rng, 1, 1, 1, 2, 3, 4), 0, nil})
				}
				apart := store.Copied(clock.Now)
				one := newForgetfulLimiter(t, apart, clock.Now)
				together, err := l.Hits(t.Context(), hits)
				require.NoError(t, err)
				yes := 0
				for i, h := range hits {
					d, err := one.Hit(t.Context(), h)
					require.NoError(t, err)
					require.Equal(t, d.Allowed, together[i].Decision.Allowed, "%s: the %dth of %+v", limits, i+1, hits)
					if d.Allowed {
						yes++
					}
				}
				require.Equal(t, standing(apart), standing(store), "%s: %+v", limits, hits)
				admitted += yes
				denied += len(hits) - yes
				if yes > 0 && yes < len(hits) {
					mixed++
				}
			}
		}
	}
	t.Logf("%d admitted, %d denied, %d lists with both", admitted, denied, mixed)
	require.Greater(t, mixed, testkit.Times(150))
}

// standing returns all buckets that hold something.
func standing(s *storetest.Solo) map[string]map[uint64]int64 {
	all := map[string]map[uint64]int64{}
	for counter, items := range s.Of {
		for bucket, item := range items {
			if item.Value != 0 {
				if all[counter] == nil {
					all[counter] = map[uint64]int64{}
				}
				all[counter][bucket] = item.Value
			}
		}
	}
	return all
}

// together has that many callers hit at once, each with features of its own number,
// and returns the decisions.
func together(t *testing.T, l *limiter.Limiter, n int, hit func(i int) limiter.Hit) []events.Decision {
	decisions := make([]events.Decision, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			var err error
			decisions[i], err = l.Hit(t.Context(), hit(i))
			assert.NoError(t, err)
		})
	}
	running.Wait()
	return decisions
}

// allowed returns how many of the decisions admit.
func allowed(decisions []events.Decision) (n int) {
	for _, d := range decisions {
		if d.Allowed {
			n++
		}
	}
	return n
}

// A hit that waits on a counter goes with the next batch: of many hits at once the first
// goes alone, and all others together.
func TestHitsThatWaitShareATrip(t *testing.T) {
	for name, test := range map[string]struct {
		limits string
		user   func(i int) string // of the i-th hit
		trips  int
	}{
		"one counter": {"[{per: ip, rate: [1000/s, 1000/m, 1000/h, 1000/d]}]", func(int) string { return "a" }, 2},
		// The first asks for its two, then all others for theirs and the one they share.
		"one of two":   {"[{per: user, rate: 1000/d}, {per: ip, rate: 1000/d}]", func(i int) string { return fmt.Sprint(i) }, 2 + 64},
		"none in line": {"[{per: user, rate: 1000/d}]", func(i int) string { return fmt.Sprint(i) }, 64},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				store := storetest.NewSolo(time.Now)
				store.Delay = time.Millisecond
				l := newTestLimiter(t, store, time.Now)
				event := testkit.Event(t, test.limits)
				hit := func(i int) limiter.Hit {
					return limiter.Hit{event, events.Features{"ip": "192.0.2.1", "user": test.user(i)}, 1, 0, nil}
				}
				var first []events.Decision
				var leads sync.WaitGroup
				leads.Go(func() { first = together(t, l, 1, hit) })
				synctest.Wait() // it is under way, on all of its counters
				decisions := together(t, l, 63, func(i int) limiter.Hit { return hit(i + 1) })
				leads.Wait()
				assert.Equal(t, 64, allowed(first)+allowed(decisions))
				assert.Equal(t, test.trips, store.Trips)
				ip, err := event.Counter(events.Features{"ip": "192.0.2.1"})
				require.NoError(t, err)
				if test.trips != 64 {
					assert.Equal(t, int64(64), store.Sum(ip.ID(), uint8(hierarchy.Day)))
				}
				requireEmptyQueue(t, l)
			})
		})
	}
}

// requireEmptyQueue fails if a queue is still held.
func requireEmptyQueue(t *testing.T, l *limiter.Limiter) {
	t.Helper()
	require.Zero(t, l.Busy())
}

// The denied adds of a batch are rolled back at once, and no window holds more than its
// limit, whatever the others cost.
func TestABatchRollsBackTogether(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := storetest.NewSolo(time.Now)
		store.Delay = time.Millisecond
		takeBacks := &countedRollBacks{Solo: store}
		l := newTestLimiter(t, takeBacks, time.Now)
		event := testkit.Event(t, "[{per: ip, rate: 10/d}]")
		who := events.Features{"ip": "192.0.2.1"}
		decisions := together(t, l, 64, func(i int) limiter.Hit { return limiter.Hit{event, who, int64(1 + i%3), 0, nil} })
		admitted := int64(0)
		for i, d := range decisions {
			if d.Allowed {
				admitted += int64(1 + i%3)
			}
		}
		assert.Equal(t, int64(10), admitted)
		assert.Equal(t, int64(1), takeBacks.calls.Load())
		ip, err := event.Counter(who)
		require.NoError(t, err)
		assert.Equal(t, int64(10), store.Sum(ip.ID(), uint8(hierarchy.Second)))
		assert.Equal(t, int64(10), store.Sum(ip.ID(), uint8(hierarchy.Day)))
	})
}

type countedRollBacks struct {
	*storetest.Solo
	calls atomic.Int64
}

func (s *countedRollBacks) Do(ctx context.Context, ops ...*store.Op) {
	for _, op := range ops {
		if op.Kind() == store.Subtract {
			s.calls.Add(1)
		}
	}
	s.Solo.Do(ctx, ops...)
}

// downStore answers nothing, until the deadline.
type downStore struct{ *storetest.Solo }

func (s downStore) Do(ctx context.Context, ops ...*store.Op) {
	store.SideBySide(ops, func(op *store.Op) {
		if !storetest.IsTrip(op) {
			s.Solo.Do(ctx, op)
			return
		}
		<-ctx.Done()
		op.Err = ctx.Err()
	})
}

// Every hit is answered within the timeout, the ones in the queue included, while the store
// is down.
func TestNoHitWaitsInTheQueueBeyondTheTimeout(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := newTestLimiter(t, downStore{storetest.NewSolo(time.Now)}, time.Now)
		event := testkit.Event(t, "[{per: ip, rate: 100/d, on_error: deny}]")
		var running sync.WaitGroup
		for range 300 {
			running.Go(func() {
				began := time.Now()
				d, err := l.Hit(t.Context(), limiter.Hit{event, events.Features{"ip": "192.0.2.1"}, 1, 0, nil})
				assert.NoError(t, err)
				assert.True(t, d.Unavailable)
				assert.LessOrEqual(t, time.Since(began), time.Second)
			})
			time.Sleep(7 * time.Millisecond)
		}
		running.Wait()
		requireEmptyQueue(t, l)
	})
}

// A hit whose context ends soon goes by itself: it neither waits nor has others end
// with it.
func TestAHurriedHitGoesByItself(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := storetest.NewSolo(time.Now)
		store.Delay = 50 * time.Millisecond // an add and a read: 100
		l := newTestLimiter(t, store, time.Now)
		event := testkit.Event(t, "[{per: ip, rate: 100/d, on_error: deny, precision: hour}]")
		hit := limiter.Hit{event, events.Features{"ip": "192.0.2.1"}, 1, 0, nil}
		var running sync.WaitGroup
		defer running.Wait()
		running.Go(func() {
			_, err := l.Hit(t.Context(), hit)
			assert.NoError(t, err)
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		began := time.Now()
		d, err := l.Hit(ctx, hit)
		require.NoError(t, err)
		assert.True(t, d.Allowed)
		assert.LessOrEqual(t, time.Since(began), 150*time.Millisecond)
		assert.Equal(t, 2, store.Trips)
	})
}

// A caller that leaves the queue changes nothing for the others.
func TestLeavingTheQueue(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := storetest.NewSolo(time.Now)
		store.Delay = time.Millisecond
		l := newTestLimiter(t, store, time.Now)
		event := testkit.Event(t, "[{per: ip, rate: 5/d}]")
		ctx, cancel := context.WithCancel(t.Context())
		var admitted atomic.Int64
		var running sync.WaitGroup
		for i := range 20 {
			running.Go(func() {
				with := t.Context()
				if i%2 == 1 {
					with = ctx
				}
				d, err := l.Hit(with, limiter.Hit{event, events.Features{"ip": "192.0.2.1"}, 1, 0, nil})
				assert.NoError(t, err)
				if d.Allowed {
					admitted.Add(1)
				}
			})
		}
		synctest.Wait()
		cancel()
		running.Wait()
		assert.Equal(t, int64(5), admitted.Load())
	})
}

// panickingStore panics once, while hits wait.
type panickingStore struct {
	*storetest.Solo
	after time.Duration
}

func (s *panickingStore) Do(ctx context.Context, ops ...*store.Op) {
	if after := s.after; after > 0 && storetest.IsTrip(ops[0]) {
		s.after = 0
		time.Sleep(after)
		panic("a store's mistake")
	}
	s.Solo.Do(ctx, ops...)
}

// A panic of the store is that of the one hit that made the trip; the others of its batch
// get an error, and no hit waits for ever.
func TestAPanicLeavesNoHitInTheQueue(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &panickingStore{Solo: storetest.NewSolo(time.Now)}
		l := newTestLimiter(t, store, time.Now)
		event := testkit.Event(t, "[{per: ip, rate: 100/d}]")
		hit := limiter.Hit{event, events.Features{"ip": "192.0.2.1"}, 1, 0, nil}
		// The first is held up, the next two wait and go together, and panic.
		store.Delay = 50 * time.Millisecond
		var panics, errors, admitted atomic.Int64
		var running sync.WaitGroup
		hitOnce := func() {
			defer func() {
				if recover() != nil {
					panics.Add(1)
				}
			}()
			switch d, err := l.Hit(t.Context(), hit); {
			case err != nil:
				assert.ErrorIs(t, err, engine.ErrStore)
				errors.Add(1)
			case d.Allowed:
				admitted.Add(1)
			}
		}
		running.Go(hitOnce)
		synctest.Wait()
		store.after = time.Millisecond
		running.Go(hitOnce)
		running.Go(hitOnce)
		running.Wait()
		assert.Equal(t, [3]int64{1, 1, 1}, [3]int64{panics.Load(), errors.Load(), admitted.Load()})
		store.Delay = 0
		hitOnce()
		assert.Equal(t, int64(2), admitted.Load())
		requireEmptyQueue(t, l)
	})
}

// Hits of two generations of rules that go together, because one came before a reload and
// one after it, are decided on counters that are kept as each of them wants it.
func TestGenerationsOfRulesGoTogether(t *testing.T) {
	before, after := testkit.Event(t, "[{per: ip, rate: 1000/h}]"), testkit.Event(t, "[{per: ip, rate: [1000/h, 5/d]}]")
	who := events.Features{"ip": "192.0.2.1"}
	clock := testkit.NewClock(time.Time{})
	l := newTestLimiter(t, storetest.NewSolo(clock.Now), clock.Now)
	hits := []limiter.Hit{{before, who, 1, 0, nil}}
	for range 7 {
		hits = append(hits, limiter.Hit{after, who, 1, 0, nil}, limiter.Hit{before, who, 1, 0, nil})
	}
	results, err := l.Hits(t.Context(), hits)
	require.NoError(t, err)
	admitted := 0
	for _, r := range results {
		if len(r.Decision.Limits) == 2 && r.Decision.Allowed {
			admitted++
		}
	}
	assert.Equal(t, 5, admitted)
}

// partlyDown answers after a millisecond, but for the counters that are down: nothing
// until the deadline.
type partlyDown struct {
	*storetest.Solo
	down map[string]bool
}

func (s partlyDown) Do(ctx context.Context, ops ...*store.Op) {
	store.SideBySide(ops, func(op *store.Op) {
		switch {
		case !storetest.IsTrip(op):
		case s.down[op.Counter]:
			<-ctx.Done()
			op.Err = ctx.Err()
			return
		default:
			time.Sleep(time.Millisecond)
		}
		s.Solo.Do(ctx, op)
	})
}

// A server that does not answer holds up the hits on its counters, and of the other hits
// the ones in the first batch with them.
func TestAServerThatIsDownHoldsUpFew(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		event := testkit.Event(t, "[{per: ip, rate: 100000/s}, {per: user, rate: 100000/s}]")
		store := partlyDown{storetest.NewSolo(time.Now), map[string]bool{}}
		down, err := event.Counter(events.Features{"user": "0"})
		require.NoError(t, err)
		store.down[down.ID()] = true
		l, err := limiter.New(limiter.Config{}, hierarchy.NewCounters(hierarchy.Config{Store: store}))
		require.NoError(t, err)
		var slow, all atomic.Int64
		var running sync.WaitGroup
		for i := range 4000 { // in two seconds, a tenth of them by the user that is down
			running.Go(func() {
				began := time.Now()
				_, err := l.Hit(t.Context(), limiter.Hit{event, events.Features{"ip": "192.0.2.1", "user": fmt.Sprint(i % 10)}, 1, 0, nil})
				assert.NoError(t, err)
				if i%10 != 0 {
					all.Add(1)
					if time.Since(began) > 15*time.Millisecond {
						slow.Add(1)
					}
				}
			})
			time.Sleep(500 * time.Microsecond)
		}
		running.Wait()
		t.Logf("%d of %d were held up", slow.Load(), all.Load())
		assert.Less(t, slow.Load(), all.Load()/10)
		requireEmptyQueue(t, l)
	})
}

// farStore is a store each of whose trips takes that long, and fails where there is
// not so much time.
type farStore struct {
	*storetest.Solo
	rtt time.Duration
}

func (s farStore) Do(ctx context.Context, ops ...*store.Op) {
	store.SideBySide(ops, func(op *store.Op) {
		if op.Kind() == store.Delete {
			s.Solo.Do(ctx, op)
			return
		}
		time.Sleep(s.rtt / 2)
		s.Solo.Do(ctx, op)
		op.Err = cmp.Or(op.Err, s.back(ctx))
	})
}

// back waits for the answer, or until the deadline.
func (s farStore) back(ctx context.Context) error {
	arrives := time.Now().Add(s.rtt / 2)
	if deadline, bounded := ctx.Deadline(); bounded && deadline.Before(arrives) {
		time.Sleep(time.Until(deadline))
		return context.DeadlineExceeded
	}
	time.Sleep(s.rtt / 2)
	return nil
}

// A burst on limits that order hits differently, in three processes, admits what fits
// if trips are not so slow that the timeout ends the search for it.
func TestABurstInThreeProcesses(t *testing.T) {
	for _, limits := range []string{
		"[{per: ip, rate: [10/s, 10/m, 10/h, 10/d]}]",
		"[{per: ip, rate: 10/d}, {per: [ip, user], rate: 10/h}]",
	} {
		for rtt, least := range map[time.Duration]int64{1: 10, 20: 10, 40: 10, 90: 1} {
			for seed := range uint64(4) {
				admitted := burstOf(t, limits, rtt*time.Millisecond, seed)
				t.Logf("%s, trips of %d ms: %d admitted", limits, rtt, admitted)
				require.LessOrEqual(t, admitted, int64(10))
				require.GreaterOrEqual(t, admitted, least)
			}
		}
	}
}

// burstOf has 200 callers hit within a few milliseconds, and returns how many are admitted.
func burstOf(t *testing.T, limits string, rtt time.Duration, seed uint64) int64 {
	var admitted atomic.Int64
	bubble.Test(t, func(t *testing.T) {
		store := farStore{storetest.NewSolo(time.Now), rtt}
		event := testkit.Event(t, limits)
		rng := rand.New(rand.NewPCG(seed, 1))
		var fleet []*limiter.Limiter
		for range 3 {
			l, err := limiter.New(limiter.Config{}, hierarchy.NewCounters(hierarchy.Config{Store: store}))
			require.NoError(t, err)
			fleet = append(fleet, l)
		}
		var running sync.WaitGroup
		defer running.Wait()
		for i := range 200 {
			after := time.Duration(rng.Int64N(int64(5 * time.Millisecond)))
			running.Go(func() {
				time.Sleep(after)
				d, err := fleet[i%3].Hit(t.Context(), limiter.Hit{event, events.Features{"ip": "192.0.2.1", "user": fmt.Sprint(i % 2)}, 1, 0, nil})
				assert.NoError(t, err)
				if d.Allowed && !d.Limits[0].Failed {
					admitted.Add(1)
				}
			})
		}
	})
	return admitted.Load()
}

// Increments exceed limits, and the overshoot stays in open buckets. Of many calls at once, a
// twentieth of them increments, none is refused for that, none waits until the timeout, and of
// each caller's hits at most the first waits for half of it.
func TestCallsAtOnceOnWhatIncrementsExceed(t *testing.T) {
	const callers, rounds = 3000, 10
	bubble.Test(t, func(t *testing.T) {
		event := testkit.Event(t, "[{per: ip, rate: 20/m}, {per: user, rate: [10/s, 50/h]}, {per: [], rate: 1000/d}]")
		store := farStore{storetest.NewSolo(time.Now), time.Millisecond}
		counters := hierarchy.NewCounters(hierarchy.Config{Store: store})
		l, err := limiter.New(limiter.Config{}, counters)
		require.NoError(t, err)
		var hits, slow atomic.Int64
		var waited atomic.Int64
		var running sync.WaitGroup
		for i := range callers {
			running.Go(func() {
				features := events.Features{"ip": fmt.Sprintf("192.0.2.%d", i%7), "user": fmt.Sprint(i % 50)}
				for range rounds {
					if i%20 == 0 {
						applied, err := event.Apply(nil, features)
						assert.NoError(t, err)
						for _, a := range applied {
							_, err := counters.Increment(t.Context(), 1, time.Time{}, a.Counter)
							assert.NoError(t, err)
						}
						continue
					}
					began := time.Now()
					d, err := l.Hit(t.Context(), limiter.Hit{event, features, 1, 0, nil})
					assert.NoError(t, err)
					assert.False(t, d.Unavailable)
					took := time.Since(began)
					assert.Less(t, took, limiter.DefaultTimeout)
					waited.Add(int64(took))
					hits.Add(1)
					if took >= limiter.DefaultTimeout/2 {
						slow.Add(1)
					}
				}
			})
		}
		running.Wait()
		t.Logf("%d hits, %s waited on average, %d for half the timeout, %d trips",
			hits.Load(), time.Duration(waited.Load()/hits.Load()), slow.Load(), store.Trips)
		assert.LessOrEqual(t, slow.Load(), hits.Load()/rounds)
	})
}
