package limiter_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit"

	"github.com/counterd/counterd/internal/limiter"
)

// someUser makes the hits of tests in which the user does not matter.
var someUser = events.Features{"ip": "192.0.2.1", "user": "a"}

// hit is one of the first process. The store's trips are those of it from here on.
func (c *cached) hit(t *testing.T, cost int64) events.Decision {
	t.Helper()
	c.store.Trips, c.store.RolledBack = 0, false
	d, err := c.limiters[0].Hit(t.Context(), limiter.Hit{c.event, someUser, cost, 0, nil})
	require.NoError(t, err)
	return d
}

// check is that of a process that remembers nothing.
func (c *cached) check(t *testing.T, cost int64) events.Decision {
	t.Helper()
	d, err := newForgetfulLimiter(t, c.store, c.clock.Now).Check(t.Context(), limiter.Hit{c.event, someUser, cost, 0, nil})
	require.NoError(t, err)
	return d
}

// A cached denial is given as long as a check agrees with it, and no longer, whatever this
// process has admitted, rolled back, incremented or forgotten since.
func TestADenialThatIsGivenAgainIsTrue(t *testing.T) {
	for name, since := range map[string]func(t *testing.T, c *cached){
		"nothing":       func(*testing.T, *cached) {},
		"a smaller hit": func(t *testing.T, c *cached) { require.True(t, c.hit(t, 1).Allowed) },
		"another denied, and rolled back": func(t *testing.T, c *cached) {
			require.False(t, c.hit(t, 3).Allowed)
			require.True(t, c.store.RolledBack)
		},
		"larger ones": func(t *testing.T, c *cached) {
			for cost := int64(40); cost > 4; cost-- { // more than are remembered
				require.False(t, c.hit(t, cost).Allowed)
				require.False(t, c.store.RolledBack, "it adds nothing")
			}
		},
		"a batch": func(t *testing.T, c *cached) {
			results, err := c.limiters[0].Hits(t.Context(), []limiter.Hit{{c.event, someUser, 4, 0, nil}, {c.event, someUser, 1, 0, nil}, {c.event, someUser, 4, 0, nil}})
			require.NoError(t, err)
			require.True(t, results[1].Decision.Allowed)
			requireCheck(t, c.check(t, 4), results[0].Decision)
			requireCheck(t, c.check(t, 4), results[2].Decision)
		},
		"an increment":    func(t *testing.T, c *cached) { c.increment(t, 0, 0) },
		"a late one":      func(t *testing.T, c *cached) { c.increment(t, 0, 8*time.Second) },
		"a reset":         func(t *testing.T, c *cached) { require.NoError(t, c.counters[0].Reset(t.Context(), c.counter)) },
		"the next second": func(_ *testing.T, c *cached) { c.clock.Advance(100 * time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCached(t, "[{per: ip, rate: [5/10s, 100/h]}]")
			for range 3 {
				require.True(t, c.hit(t, 1).Allowed)
				c.clock.Advance(time.Second)
			}
			c.clock.Advance(6*time.Second + 950*time.Millisecond)
			denied := c.hit(t, 4)
			require.False(t, denied.Allowed)
			require.Equal(t, 2*time.Second, denied.RetryAfter)
			require.Equal(t, c.check(t, 4), denied)
			since(t, c)
			want := c.check(t, 4)
			require.Equal(t, name == "a reset", want.Allowed)
			got := c.hit(t, 4)
			if want.Allowed {
				require.True(t, got.Allowed)
				return
			}
			require.Equal(t, want, got)
			require.Equal(t, name == "nothing", c.store.Trips == 0, "from memory")
			require.False(t, c.store.RolledBack, "it looks before it adds")
			require.Equal(t, want, c.hit(t, 4))
			require.Zero(t, c.store.Trips, "what it has found is remembered")
		})
	}
}

// requireCheck requires the decision to be that of a check, except that counts may be upper bounds.
func requireCheck(t *testing.T, want, got events.Decision) {
	t.Helper()
	require.Equal(t, want.RetryAfter, got.RetryAfter, "%+v, %+v", want, got)
	for i, s := range got.Limits {
		if !s.Exact {
			require.GreaterOrEqual(t, s.Count, want.Limits[i].Count)
			s.Count, s.Remaining, s.Exact, s.Over = want.Limits[i].Count, want.Limits[i].Remaining, true, false
		}
		require.Equal(t, want.Limits[i], s)
	}
}

// In a random history of one process every denial, cached or not, of a hit alone or of a
// batch, equals the answer of a check at that moment.
func TestOneProcessDeniesTruly(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 18))
	clock := testkit.NewClock(time.Time{})
	denied, recalled, together := 0, int64(0), 0
	for _, limits := range append([]string{"[{per: ip, rate: [5/3s, 9/20s]}, {per: user, rate: 7/5s}]"}, testkit.Limits...) {
		event := testkit.Event(t, limits)
		for range testkit.Times(5) {
			store := storetest.NewSolo(clock.Now)
			counters := newCounters(store, clock.Now)
			l, err := limiter.New(limiter.Config{Timeout: time.Second}, counters)
			require.NoError(t, err)
			asked := newForgetfulLimiter(t, store, clock.Now)
			requireTrue := func(h limiter.Hit, d events.Decision) {
				t.Helper()
				want, err := asked.Check(t.Context(), h)
				require.NoError(t, err)
				requireCheck(t, want, d)
				denied++
			}
			for range 60 {
				clock.Advance(time.Duration(rng.Int64N([]int64{1, 2e8, 2e9, 40e9, 4000e9}[rng.IntN(5)])))
				hits := make([]limiter.Hit, 1+max(0, rng.IntN(12)-7))
				for i := range hits {
					features := events.Features{"ip": testkit.Pick(rng, "192.0.2.1", "192.0.2.1", "192.0.2.2"), "user": testkit.Pick(rng, "a", "a", "b")}
					hits[i] = limiter.Hit{event, features, 1 + rng.Int64N(4), 0, nil}
				}
				// No more than fits: what is overfull is looked at again and again, for it may be of
				// the moment.
				if d, err := asked.Check(t.Context(), limiter.Hit{event, hits[0].Features, 1, 0, nil}); rng.IntN(10) == 0 && d.Allowed {
					require.NoError(t, err)
					applied, err := event.Apply(nil, hits[0].Features)
					require.NoError(t, err)
					_, err = counters.Increment(t.Context(), 1, clock.Now().Add(-time.Duration(rng.Int64N(1e9))), applied[0].Counter)
					require.NoError(t, err)
				}
				if len(hits) == 1 {
					d, err := l.Hit(t.Context(), hits[0])
					require.NoError(t, err)
					if !d.Allowed {
						requireTrue(hits[0], d)
					}
					continue
				}
				one := newForgetfulLimiter(t, store.Copied(clock.Now), clock.Now)
				results, err := l.Hits(t.Context(), hits)
				require.NoError(t, err)
				for i, r := range results {
					d, err := one.Hit(t.Context(), hits[i])
					require.NoError(t, err)
					require.Equal(t, d.Allowed, r.Decision.Allowed)
					if !d.Allowed { // no earlier than one by one, and no later than after all hits
						after, err := asked.Check(t.Context(), hits[i])
						require.NoError(t, err)
						require.GreaterOrEqual(t, r.Decision.RetryAfter, d.RetryAfter)
						require.LessOrEqual(t, r.Decision.RetryAfter, after.RetryAfter)
						together++
					}
				}
			}
			recalled += l.Stats().CachedDenials
		}
	}
	t.Logf("%d denied, %d of them in batches, %d from memory", denied, together, recalled)
	require.Greater(t, denied, testkit.Times(600))
	require.Greater(t, together, testkit.Times(300))
	require.Greater(t, recalled, int64(testkit.Times(60)))
}

// A denial of the store, or of the memory, is what it is, whatever fails later for others
// that are decided with it: its limits are known, and the wait is that of the one that
// denies.
func TestADenialIsNotUnknownWhereOthersFail(t *testing.T) {
	for name, test := range map[string]struct {
		wary  bool // it has to look
		fail  func(c *cached, adds []store.Write) error
		exact bool // how long it has to wait
	}{
		"remembered, and the others' trip fails": {fail: func(*cached, []store.Write) error { return errDown }, exact: true},
		"seen, and the others' trip fails": {wary: true, fail: func(_ *cached, adds []store.Write) error {
			if len(adds) > 0 {
				return errDown
			}
			return nil
		}},
		"seen, and the others are late": {wary: true, fail: func(c *cached, adds []store.Write) error {
			if len(adds) > 0 {
				c.clock.Advance(1500 * time.Millisecond)
			}
			return nil
		}},
	} {
		for _, onError := range []string{"allow", "deny", "local"} {
			t.Run(name+", "+onError, func(t *testing.T) {
				c := newCached(t, "[{per: ip, rate: [5/10s, 100/h], on_error: "+onError+"}, {per: user, rate: 50/h, on_error: "+onError+"}]")
				failing := &failingStore{Solo: c.store}
				var err error
				c.limiters[0], err = limiter.New(limiter.Config{Local: localEngines(storetest.NewSolo(c.clock.Now), c.clock.Now)}, hierarchy.NewCounters(hierarchy.Config{Store: failing, Clock: c.clock.Now}))
				require.NoError(t, err)
				require.True(t, c.hit(t, 3).Allowed)
				c.clock.Advance(2 * time.Second)
				require.Equal(t, 8*time.Second, c.hit(t, 3).RetryAfter)
				if test.wary {
					c.clock.Advance(time.Second)
				}
				want := c.check(t, 3)
				failing.fail = func(adds []store.Write) error { return test.fail(c, adds) }
				results, err := c.limiters[0].Hits(t.Context(), []limiter.Hit{
					{c.event, someUser, 3, 0, nil},
					{c.event, events.Features{"ip": "192.0.2.1", "user": "b"}, 1, 0, nil},
					{c.event, someUser, 3, 0, nil},
				})
				require.NoError(t, err)
				require.True(t, results[1].Decision.Limits[0].Failed)
				for _, i := range []int{0, 2} {
					d := results[i].Decision
					require.False(t, d.Allowed)
					require.False(t, d.Unavailable)
					if test.exact {
						require.Equal(t, want.RetryAfter, d.RetryAfter)
					}
					assert.GreaterOrEqual(t, d.RetryAfter, want.RetryAfter)
					assert.LessOrEqual(t, d.RetryAfter, 10*time.Second)
					for k, s := range d.Limits[:2] {
						s.Reset = want.Limits[k].Reset
						if !s.Exact { // another hit of the call was let through
							s.Count, s.Remaining, s.Exact = s.Count-1, s.Remaining+1, true
						}
						assert.Equal(t, want.Limits[k], s)
					}
				}
			})
		}
	}
}

// failingStore fails as its test says.
type failingStore struct {
	*storetest.Solo
	mu   sync.Mutex // trips of a decision go side by side
	fail func(adds []store.Write) error
}

func (s *failingStore) Do(ctx context.Context, ops ...*store.Op) {
	store.SideBySide(ops, func(op *store.Op) {
		if s.fail != nil && storetest.IsTrip(op) {
			s.mu.Lock()
			op.Err = s.fail(op.Writes)
			s.mu.Unlock()
			if op.Err != nil {
				return
			}
		}
		s.Solo.Do(ctx, op)
	})
}

// What can be found out of a wait is found out of what is there, and where the search for it
// is cut short it is no longer than the window.
func TestAWaitIsNoLongerThanItsWindow(t *testing.T) {
	isSecond := func(bucket uint64) bool { return store.ItemLevel(bucket) == uint8(hierarchy.Second) }
	for name, test := range map[string]struct {
		limits string
		want   int64 // seconds
		fail   func(c *cached, adds []store.Write) error
		true   bool // by what is there
	}{
		// Five stand in the minute's second 33, and it is 40.
		"the store fails":       {"[{per: ip, rate: 5/m}]", 60, func(*cached, []store.Write) error { return errDown }, false},
		"the store fails later": {"[{per: ip, rate: 5/h}]", 3600, func(*cached, []store.Write) error { return errDown }, false},
		"by minutes":            {"[{per: ip, rate: 5/h, precision: minute}]", 3600 + 19, func(*cached, []store.Write) error { return errDown }, false},
		"the store fails when it looks again": {"[{per: ip, rate: [5/m, 5/h]}]", 3600, func(_ *cached, adds []store.Write) error {
			if len(adds) == 0 {
				return errDown
			}
			return nil
		}, false},
		"the seconds are lost": {"[{per: ip, rate: 5/m}]", 60 - 40, func(c *cached, _ []store.Write) error {
			for bucket := range c.store.Of[c.counter.ID()] {
				if isSecond(bucket) {
					delete(c.store.Of[c.counter.ID()], bucket)
				}
			}
			return nil
		}, true},
		"some of them are lost": {"[{per: ip, rate: 5/m}]", 60 - 40, func(c *cached, _ []store.Write) error {
			for bucket, item := range c.store.Of[c.counter.ID()] {
				if isSecond(bucket) && item.Value > 0 {
					item.Value = 1
					c.store.Of[c.counter.ID()][bucket] = item
				}
			}
			return nil
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCached(t, test.limits)
			failing := &failingStore{Solo: c.store}
			var err error
			c.limiters[0], err = limiter.New(limiter.Config{Timeout: hierarchy.DefaultGrace / 2}, hierarchy.NewCounters(hierarchy.Config{Store: failing, Clock: c.clock.Now}))
			require.NoError(t, err)
			require.True(t, c.hit(t, 5).Allowed)
			c.clock.Advance(7 * time.Second)
			added := false
			failing.fail = func(adds []store.Write) error {
				if !added {
					added = len(adds) > 0
					return nil
				}
				return test.fail(c, adds)
			}
			d := c.hit(t, 1)
			require.False(t, d.Allowed)
			require.False(t, slices.ContainsFunc(d.Limits, func(s events.LimitState) bool { return s.Failed }))
			assert.Equal(t, time.Duration(test.want)*time.Second, d.RetryAfter)
			failing.fail = nil
			if test.true {
				c.clock.Advance(d.RetryAfter - time.Second)
				assert.False(t, c.check(t, 1).Allowed)
				c.clock.Advance(time.Second)
				assert.True(t, c.check(t, 1).Allowed)
			}
		})
	}
}

// Hits of two generations of rules that go together are each denied by limits of their own, and
// no denial of one is given to the other.
func TestADenialIsOfTheHitsOwnLimits(t *testing.T) {
	c := newCached(t, "[{per: ip, rate: 5/10s}]")
	raised := testkit.Event(t, "[{per: ip, rate: 50/10s}]")
	require.True(t, c.hit(t, 5).Allowed)
	for range 3 {
		results, err := c.limiters[0].Hits(t.Context(), []limiter.Hit{{c.event, someUser, 1, 0, nil}, {raised, someUser, 1, 0, nil}})
		require.NoError(t, err)
		require.False(t, results[0].Decision.Allowed)
		require.True(t, results[1].Decision.Allowed)
	}
}
