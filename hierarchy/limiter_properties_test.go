package hierarchy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/oracle"
)

// smallCache is for tests that make thousands of limiters: big enough for the 42
// buckets of a counter.
const smallCache = 1 << 20

func newTestLimiter(tb testing.TB, store store.Store, clock func() time.Time) *limiter.Limiter {
	tb.Helper()
	l, err := limiter.New(limiter.Config{Timeout: time.Second}, NewCounters(Config{Store: store, Clock: clock, CacheBytes: smallCache}))
	require.NoError(tb, err)
	return l
}

// newUncachedLimiter returns a limiter that has each denial decided by the store.
func newUncachedLimiter(tb testing.TB, store store.Store, clock func() time.Time) *limiter.Limiter {
	tb.Helper()
	l, err := limiter.New(limiter.Config{Timeout: time.Second, NoCachedDenials: true}, NewCounters(Config{Store: store, Clock: clock, CacheBytes: smallCache}))
	require.NoError(tb, err)
	return l
}

// newForgetfulLimiter returns a limiter that caches nothing, for tests that make many.
func newForgetfulLimiter(tb testing.TB, store store.Store, clock func() time.Time) *limiter.Limiter {
	tb.Helper()
	counters := NewCounters(Config{Store: store, Clock: clock, CacheBytes: -1})
	l, err := limiter.New(limiter.Config{Timeout: time.Second, NoCachedDenials: true}, counters)
	require.NoError(tb, err)
	return l
}

// holds returns the sum of a full cover of the window that the second ends, and of the time ahead.
func holds(log *oracle.Log, counter events.Counter, window time.Duration, second, ahead int64) int64 {
	seconds := int64(window / time.Second)
	finest, _ := levels(counter)
	first := BucketAt(finest, second-seconds+1).First()
	return log.Sum(counter.ID(), first, second+min(ahead, seconds-1))
}

// In a random history without concurrency every decision is that of the full
// cover of each window, taken from an exact log at the same instant.
func TestDecisionsEqualTheFullCover(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	clock := testkit.NewClock(time.Time{})
	decisions, admitted := 0, 0
	for _, limits := range testkit.Limits {
		event := testkit.Event(t, limits)
		for range testkit.Times(8) {
			store := storetest.NewSolo(clock.Now)
			var fleet []*limiter.Limiter // of clocks that differ a little
			for i := range 3 {
				fleet = append(fleet, newUncachedLimiter(t, store, func() time.Time { return clock.Now().Add(time.Duration(i) * 250 * time.Millisecond) }))
			}
			log := oracle.NewLog()
			for range 60 {
				clock.Advance(testkit.Step(rng))
				l := fleet[rng.IntN(len(fleet))]
				h := limiter.Hit{Event: event, Features: events.Features{"ip": testkit.Pick(rng, "192.0.2.1", "192.0.2.2"), "user": testkit.Pick(rng, "a", "b")}, Cost: 1 + rng.Int64N(3)}
				check, err := l.Check(t.Context(), h)
				require.NoError(t, err)
				store.Trips, store.Reads, store.RolledBack = 0, 0, false
				d, err := l.Hit(t.Context(), h)
				require.NoError(t, err)
				requireLikeLog(t, log, h, d, store)
				requireLikeLog(t, log, h, check, nil)
				decisions++
				if d.Allowed {
					admitted++
					applied, err := event.Apply(nil, h.Features)
					require.NoError(t, err)
					for _, a := range applied {
						log.Add(a.ID, d.At.Unix(), h.Cost)
					}
				}
			}
		}
	}
	t.Logf("%d decisions, %d of them admit", decisions, admitted)
	require.Greater(t, admitted, decisions/5)
	require.Less(t, admitted, decisions*4/5)
}

// requireLikeLog fails unless the decision is the log's, and no more was read for
// it than the covers hold.
func requireLikeLog(t *testing.T, log *oracle.Log, h limiter.Hit, d events.Decision, store *storetest.Solo) {
	t.Helper()
	applied, err := h.Event.Apply(nil, h.Features)
	require.NoError(t, err)
	ahead := engine.CeilSeconds(DefaultGrace)
	i, covers, want := 0, 0, true
	for _, a := range applied {
		rule, counter := a.Rule, a.Counter
		finest, _ := levels(counter)
		for _, limit := range rule.LimitsOf(counter.Feature) {
			state := d.Limits[i]
			i++
			ceiling := rule.Throttle.Ceiling(limit.N)
			count := holds(log, counter, limit.Window, d.At.Unix(), ahead)
			require.Equal(t, count+h.Cost <= ceiling, state.Allowed, "%+v, the log holds %d", state, count)
			want = want && (state.Allowed || rule.Shadow)
			if store != nil && d.Allowed {
				count += h.Cost
			}
			if state.Exact {
				require.Equal(t, count, state.Count, "%+v", state)
			} else {
				require.NotNil(t, store, "a check is exact")
				require.GreaterOrEqual(t, state.Count, count, "%+v", state)
			}
			view := newView(limit.Windows(), d.At.Unix(), d.At.Unix()+ahead, finest)
			covers += view.appendTiles(nil, finest).Len()
		}
	}
	require.Equal(t, want, d.Allowed)
	fits := !slices.ContainsFunc(d.Limits, func(s events.LimitState) bool { return !s.Allowed })
	switch {
	case store == nil:
	case store.RolledBack: // what is read after that is for the reset
		require.LessOrEqual(t, store.Decided, covers)
	case fits:
		require.LessOrEqual(t, store.Reads, covers)
	}
}

// A hit that is far from its limits costs one trip and reads at most one bucket
// for each limit whose window is a whole unit, and none for a second; near the end
// of a bucket the next one, too.
func TestFarFromItsLimitsAHitReadsLittle(t *testing.T) {
	event := testkit.Event(t, "[{per: ip, rate: [100/s, 100/m, 100/h, 100/d]}]")
	rng := rand.New(rand.NewPCG(1, 2))
	twice := 0
	for i := range testkit.Times(300) {
		start := 1_773_500_000 + rng.Int64N(10*86400)
		if i%3 == 0 {
			start += 58 - start%60 // near the end of a minute
		}
		clock := testkit.NewClock(time.Unix(start, 0))
		store := storetest.NewSolo(clock.Now)
		l := newTestLimiter(t, store, clock.Now)
		for range 30 {
			store.Trips, store.Reads = 0, 0
			_, err := l.Hit(t.Context(), limiter.Hit{Event: event, Features: events.Features{"ip": "192.0.2.1"}, Cost: 1})
			require.NoError(t, err)
			require.Equal(t, 1, store.Trips)
			nearEnd := 0
			for _, unit := range []int64{60, 3600, 86400} {
				if clock.Now().Unix()%unit >= unit-2 {
					nearEnd++
				}
			}
			require.LessOrEqual(t, store.Reads, 3+nearEnd)
			if nearEnd > 0 {
				twice++
			}
		}
		clock.Advance(time.Duration(rng.IntN(20)) * time.Second)
	}
	require.Positive(t, twice)
}

// With nothing else to come, a hit at the second of RetryAfter is admitted and one
// second earlier it is denied; so is each limit's at its Reset.
func TestRetryAfterIsTheFirstSecond(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	clock := testkit.NewClock(time.Time{})
	denials, never := 0, 0
	for _, limits := range slices.Concat(testkit.Limits, testkit.CountingLimits) {
		event := testkit.Event(t, limits)
		for range testkit.Times(6) {
			store := storetest.NewSolo(clock.Now)
			l := newUncachedLimiter(t, store, clock.Now)
			ahead := newUncachedLimiter(t, store, func() time.Time { return clock.Now().Add(500 * time.Millisecond) })
			for range 60 {
				clock.Advance(testkit.Step(rng))
				if rng.IntN(3) == 0 {
					clock.Set(clock.Now().Truncate(time.Second))
				}
				features := events.Features{"ip": testkit.Pick(rng, "192.0.2.1", "192.0.2.2"), "user": testkit.Pick(rng, "a", "b")}
				h := limiter.Hit{Event: event, Features: features, Cost: testkit.Pick[int64](rng, 1, 1, 2, 3, 5, 11)}
				d, err := testkit.Pick(rng, l, l, ahead).Hit(t.Context(), h)
				require.NoError(t, err)
				if d.Allowed {
					require.Zero(t, d.RetryAfter)
					continue
				}
				check, err := newForgetfulLimiter(t, store, func() time.Time { return d.At }).Check(t.Context(), h)
				require.NoError(t, err)
				require.Equal(t, d.RetryAfter, check.RetryAfter, "a check says the same: %s: %d: %+v, %+v", limits, h.Cost, d, check)
				if d.RetryAfter == events.Never {
					never++
					require.True(t, slices.ContainsFunc(d.Limits, func(s events.LimitState) bool { return s.Reset == events.Never && h.Cost > s.Limit }))
					continue
				}
				denials++
				require.Positive(t, d.RetryAfter)
				requireAt(t, store, h, d.At, d.RetryAfter, func(d events.Decision) bool { return d.Allowed }, limits)
				for i, s := range d.Limits {
					if s.Reset != events.Never && s.Reset != 0 {
						requireAt(t, store, h, d.At, s.Reset, func(d events.Decision) bool { return d.Limits[i].Allowed }, limits)
					}
				}
			}
		}
	}
	t.Logf("%d denials, and %d for ever", denials, never)
	require.Greater(t, denials, testkit.Times(200))
	require.Greater(t, never, testkit.Times(20))
}

// requireAt fails unless the hit, and a check of it, is admitted that long after
// the second, and denied a second earlier.
func requireAt(t *testing.T, store *storetest.Solo, h limiter.Hit, at time.Time, wait time.Duration, admits func(events.Decision) bool, about string) {
	t.Helper()
	for _, early := range []int64{0, 1} {
		now := func() time.Time { return at.Add(time.Duration(wait) - time.Duration(early)*time.Second) }
		l := newForgetfulLimiter(t, store.Copied(now), now)
		check, err := l.Check(t.Context(), h)
		require.NoError(t, err)
		hit, err := l.Hit(t.Context(), h)
		require.NoError(t, err)
		require.Equal(t, early == 0, admits(check), "%s: check at %s+%d-%d: %+v", about, at, wait, early, check)
		require.Equal(t, early == 0, admits(hit), "%s: hit at %s+%d-%d: %+v", about, at, wait, early, hit)
	}
}

// Callers that all come again at once cannot keep each other out: of the 150 hits
// that fit in 30 s, nearly all are admitted.
func TestNoStarvation(t *testing.T) {
	for _, processes := range []int{1, 4} {
		t.Run(fmt.Sprint(processes), func(t *testing.T) {
			t.Parallel()
			seconds := testkit.Fifth(30)
			fits := 5 * seconds
			admitted := starve(t, processes, time.Duration(seconds)*time.Second)
			t.Logf("%d processes: %d of %d admitted", processes, admitted, fits)
			assert.GreaterOrEqual(t, admitted, int64(fits*95/100))
			assert.LessOrEqual(t, admitted, int64(fits))
		})
	}
}

// starve has 64 callers in a closed loop, each of which waits up to 10 ms between
// two hits, hit a limit of 10 in 2 s for that long. It returns how many hits are
// admitted.
func starve(t *testing.T, processes int, long time.Duration) int64 {
	var admitted atomic.Int64
	bubble.Test(t, func(t *testing.T) {
		event := testkit.Event(t, "[{per: ip, rate: 10/2s}]")
		store := storetest.NewSolo(time.Now)
		store.Delay = time.Millisecond / 2 // a trip is an add and a read
		var fleet []*limiter.Limiter
		for range processes {
			counters := NewCounters(Config{Store: store, CacheBytes: smallCache})
			l, err := limiter.New(limiter.Config{Timeout: time.Second}, counters)
			require.NoError(t, err)
			fleet = append(fleet, l)
		}
		end := time.Now().Add(long)
		var running sync.WaitGroup
		defer running.Wait()
		for caller := range 64 {
			rng := rand.New(rand.NewPCG(uint64(caller), 1))
			l := fleet[caller%processes]
			running.Go(func() {
				for time.Now().Before(end) {
					d, err := l.Hit(t.Context(), limiter.Hit{Event: event, Features: events.Features{"ip": "192.0.2.1"}, Cost: 1})
					if err != nil {
						t.Errorf("hit: %v", err)
					}
					if d.Allowed && d.At.Before(end) {
						admitted.Add(1)
					}
					time.Sleep(time.Duration(rng.Int64N(int64(10 * time.Millisecond))))
				}
			})
		}
	})
	return admitted.Load()
}

// errDown is what a store says that fails.
var errDown = errors.New("down")

// Whichever command of a denied hit fails, acknowledged adds are rolled back, and the
// others are neither rolled back nor sent again.
func TestALostAddStays(t *testing.T) {
	event := testkit.Event(t, "[{per: ip, rate: [2/s, 2/m, 2/h, 100/d], on_error: deny}]")
	for failing := range 4 {
		for _, landed := range []bool{false, true} {
			clock := testkit.NewClock(time.Time{})
			store := storetest.NewSolo(clock.Now)
			h := limiter.Hit{Event: event, Features: events.Features{"ip": "192.0.2.1"}, Cost: 1}
			lossy := &lossyStore{Solo: store, failing: failing, landed: landed}
			l := newTestLimiter(t, lossy, clock.Now)
			d, err := l.Hit(t.Context(), h)
			require.NoError(t, err)
			require.False(t, d.Allowed)
			require.True(t, d.Unavailable)
			assert.Equal(t, failing+1, lossy.sent, "none is sent twice, none after it")
			counter, err := event.Counter(h.Features)
			require.NoError(t, err)
			for level := Second; level <= Day; level++ {
				want := int64(0)
				if landed && level == Level(failing) {
					want = 1
				}
				assert.Equal(t, want, store.Sum(counter.ID(), uint8(level)), "%s, the %dth add lost", level, failing+1)
			}
		}
	}
}

// lossyStore loses the answer of one add.
type lossyStore struct {
	*storetest.Solo
	failing int
	landed  bool
	sent    int
}

func (s *lossyStore) Do(ctx context.Context, ops ...*store.Op) {
	store.SideBySide(ops, func(op *store.Op) {
		if !storetest.IsTrip(op) {
			s.Solo.Do(ctx, op)
			return
		}
		for i := range op.Writes {
			s.sent++
			w := &op.Writes[i]
			if i != s.failing || s.landed {
				w.Result = s.Add(op.Counter, w.Item, w.By, w.Expires)
			}
			if i == s.failing {
				op.Receipt, op.Err = store.Acknowledged(i), errDown
				return
			}
		}
		reads := store.Op{Counter: op.Counter, Reads: op.Reads}
		s.Solo.Do(ctx, &reads)
		op.Receipt, op.Err = store.Acknowledged(len(op.Writes)), reads.Err
	})
}
