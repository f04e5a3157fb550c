package eventlog_test

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
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/oracle"
	"github.com/counterd/counterd/internal/testkit/storestest"
)

// atOnce returns the decisions of so many hits at once, by several processes.
func atOnce(t *testing.T, processes []*process, event *events.Event, hits int) (allowed []events.Decision) {
	var running sync.WaitGroup
	var mu sync.Mutex
	for i := range hits {
		running.Go(func() {
			d, err := processes[i%len(processes)].Hit(context.Background(), limiter.Hit{Event: event, Features: someUser, Cost: 1})
			if assert.NoError(t, err) && d.Allowed {
				mu.Lock()
				defer mu.Unlock()
				allowed = append(allowed, d)
			}
		})
	}
	running.Wait()
	return allowed
}

// onBuckets runs a test with three processes on each store. Retries may need their time on a busy machine.
func onBuckets(t *testing.T, limits string, config limiter.Config, test func(t *testing.T, clock *testkit.Clock, processes []*process, event *events.Event)) {
	clock := testkit.NewClock(time.Time{})
	storestest.OnEverySoloStore(t, clock.Now, func(t *testing.T, open func() store.Store) {
		var processes []*process
		config.OnStoreError = func(err error) { t.Error(err) }
		for range 3 {
			processes = append(processes, newProcess(t, open(), clock.Now, config))
		}
		test(t, clock, processes, newEvent(t, 1, limits))
	})
}

// 10/s with a burst of 20, under fire by three processes: 20 at once, and then one each 100 ms.
func TestThreeProcessesOnATokenBucket(t *testing.T) {
	onBuckets(t, "[{per: ip, rate: 10/s, burst: 20}]", limiter.Config{}, func(t *testing.T, clock *testkit.Clock, processes []*process, event *events.Event) {
		require.Len(t, atOnce(t, processes, event, 60), 20)
		for range 30 {
			clock.Advance(99 * time.Millisecond)
			require.Empty(t, atOnce(t, processes, event, 9))
			clock.Advance(time.Millisecond)
			allowed := atOnce(t, processes, event, 9)
			require.Len(t, allowed, 1)
			require.Zero(t, allowed[0].Limits[0].Remaining)
			require.Zero(t, allowed[0].Wait)
		}
		clock.Advance(time.Minute)
		require.Len(t, atOnce(t, processes, event, 60), 20)
	})
}

// 30 at once on 5/s with a queue of 10: 11 are admitted, and their turns are 200 ms apart.
func TestALeakyBucketMakesAppointments(t *testing.T) {
	onBuckets(t, "[{per: ip, rate: 5/s, queue: 10}]", limiter.Config{}, func(t *testing.T, clock *testkit.Clock, processes []*process, event *events.Event) {
		waits := func(hits int) (ms []int64) {
			for _, d := range atOnce(t, processes, event, hits) {
				ms = append(ms, d.Wait.Milliseconds())
			}
			slices.Sort(ms)
			return ms
		}
		require.Equal(t, []int64{0, 200, 400, 600, 800, 1000, 1200, 1400, 1600, 1800, 2000}, waits(30))
		clock.Advance(450 * time.Millisecond)
		require.Equal(t, []int64{1750, 1950}, waits(9))
		clock.Advance(3 * time.Second)
		require.Equal(t, []int64{0, 200}, waits(2))
	})
}

// level is what a token bucket lacks, in tokens times its window in milliseconds.
type level struct{ at, level int64 }

func (l level) fall(limit events.Limit, now int64) level {
	return level{now, max(l.level-limit.N*(now-l.at), 0)}
}

// Limits of several algorithms on one counter, and on another, give one verdict: that of a sequential
// limiter of exact windows and levels. The waits are the first milliseconds in which there is room.
func TestSeveralAlgorithmsGiveOneVerdict(t *testing.T) {
	for i, limits := range []string{
		"[{per: ip, rate: 12/20s}, {per: ip, rate: 3/s, burst: 5}, {per: ip, rate: 5/s, queue: 3}, {per: ip, rate: 1/s, burst: 1, shadow: true, name: shadow}]",
		"[{per: ip, rate: 3/s, burst: 5}, {per: ip, rate: 30/m, burst: 9, shadow: true, name: shadow}]",
		"[{per: ip, rate: 3/s, burst: 5}, {per: user, rate: 2/s, burst: 4, throttle: soft 50%}, {per: user, rate: 9/10s}]",
		"[{per: ip, rate: 7/3s, burst: 5, count: all}, {per: user, rate: 5/s, queue: 2}]",
	} {
		onVirtualTime(t, limits, func(t *testing.T) {
			clock := testkit.NewClock(time.Time{})
			kept := storestest.Embedded(clock.Now)
			event := newEvent(t, 1, limits)
			processes := []*process{newProcess(t, kept, clock.Now, limiter.Config{}), newProcess(t, kept, clock.Now, limiter.Config{NoCachedDenials: true})}
			log, levels, random := oracle.NewLog(), map[string]level{}, rand.New(rand.NewPCG(uint64(i), 9))
			allowed, denied := 0, 0
			for range 400 {
				clock.Advance(time.Duration(random.Int64N(400)) * time.Millisecond)
				now := clock.Now().UnixMilli()
				features := events.Features{"ip": testkit.Pick(random, "192.0.2.1", "192.0.2.2"), "user": testkit.Pick(random, "ada", "bob")}
				cost := 1 + random.Int64N(6)/4
				d, err := testkit.Pick(random, processes...).Hit(t.Context(), limiter.Hit{Event: event, Features: features, Cost: cost})
				require.NoError(t, err)
				applied, err := event.Apply(nil, features)
				require.NoError(t, err)
				// held returns what counts ahead of a hit then, in tokens.
				held := func(a events.Applied, limit events.Limit, at int64) int64 {
					if limit.Burst == 0 {
						return holds(log, a.ID, limit.Window, at)
					}
					window := limit.Window.Milliseconds()
					return (levels[a.ID+limit.Name].fall(limit, at).level + window - 1) / window
				}
				want, wait, n := true, int64(0), 0
				for _, a := range applied {
					limit, ceiling := a.Rule.Limits[0], a.Rule.Throttle.Ceiling(a.Rule.Limits[0].Most())
					fits := held(a, limit, now)+cost <= ceiling
					require.Equal(t, fits, d.Limits[n].Allowed, "%+v", d.Limits[n])
					want = want && (fits || a.Rule.Shadow)
					if limit.Algorithm == "leaky-bucket" {
						wait = max(wait, (levels[a.ID+limit.Name].fall(limit, now).level+limit.N-1)/limit.N)
					}
					n++
				}
				require.Equal(t, want, d.Allowed, "%+v", d)
				if !want {
					wait = 0
				}
				require.Equal(t, wait, d.Wait.Milliseconds())
				charged := map[string]bool{}
				for _, a := range applied {
					if !want && a.Rule.Count != events.CountAll {
						continue
					}
					if !charged[a.ID] {
						log.Add(a.ID, now, cost)
						charged[a.ID] = true
					}
					limit := a.Rule.Limits[0]
					l := levels[a.ID+limit.Name].fall(limit, now)
					l.level += cost * limit.Window.Milliseconds()
					levels[a.ID+limit.Name] = l
				}
				for n, a := range applied {
					s, limit := d.Limits[n], a.Rule.Limits[0]
					if !s.Exact {
						continue // a cached denial: other costs may have been admitted since
					}
					require.Equal(t, held(a, limit, now), s.Count, "%+v", s)
					require.Equal(t, max(limit.Most()-s.Count, 0), s.Remaining, "%+v", s)
					if ceiling := a.Rule.Throttle.Ceiling(limit.Most()); s.Reset > 0 && s.Reset != events.Never {
						at := now + s.Reset.Milliseconds()
						require.LessOrEqual(t, held(a, limit, at)+cost, ceiling, "%+v", s)
						require.Greater(t, held(a, limit, at-1)+cost, ceiling, "%+v", s)
					}
				}
				if want {
					allowed++
				} else {
					denied++
				}
			}
			require.Greater(t, min(allowed, denied), 5)
			require.Empty(t, append(processes[0].faults, processes[1].faults...))
		})
	}
}

// A hit on a token bucket is one round trip but for the first, and its log stays small.
func TestATokenBucketStaysSmall(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	kept := &watched{Store: storestest.Embedded(clock.Now)}
	background := 0
	kept.background = func(do func(context.Context)) { background++; do(context.Background()) }
	e, err := eventlog.New(newEngine(t, kept, clock.Now).Base())
	require.NoError(t, err)
	l, err := limiter.New(limiter.Config{Timeout: grace / 2}, e)
	require.NoError(t, err)
	event := newEvent(t, 1, "[{per: ip, rate: 10/s, burst: 20}]")
	const hits = 300
	for range hits {
		clock.Advance(100 * time.Millisecond)
		d, err := l.Hit(t.Context(), limiter.Hit{Event: event, Features: someUser, Cost: 1})
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	assert.EqualValues(t, hits+1+background, kept.trips.Load())
	clock.Advance(time.Minute)
	_, err = l.Hit(t.Context(), limiter.Hit{Event: event, Features: someUser, Cost: 1})
	require.NoError(t, err)
	assert.LessOrEqual(t, len(kept.value(t, ipOf(t, event).ID())), 61)
}

// A hit that waits gives its turn back by itself, until it comes, once, on any process: also after entries
// have lost their identity that nothing waits for. The bucket then is as if the hit had never been, and as
// ever if it does not: so many are admitted or wait as it has tokens, and its pace stays.
func TestTurnsAreGivenBack(t *testing.T) {
	const limits = "[{per: ip, rate: 10/m, queue: 10}]"
	onBuckets(t, limits, limiter.Config{NoCachedDenials: true}, func(t *testing.T, clock *testkit.Clock, processes []*process, event *events.Event) {
		const tokens, token, rate = 11, 60_000, 10 // a minute's milliseconds
		var admitted, taken []engine.Reserved
		limit, random := event.Rules[0].Limits[0], rand.New(rand.NewPCG(1, 2))
		fill := func(now int64) (filled level) { // by all that were not given back
			for _, r := range admitted {
				filled = filled.fall(limit, r.Time)
				filled.level += token
			}
			return filled.fall(limit, now)
		}
		given, late, last := 0, 0, 0
		for range 500 {
			pause := random.Int64N(6000)
			if n := len(taken); n > 0 && random.IntN(8) == 0 { // the last one waits alone, and for little longer
				pause = max(taken[n-1].Ends-clock.Now().UnixMilli()-random.Int64N(7000), 0)
			}
			clock.Advance(time.Duration(pause) * time.Millisecond)
			now := clock.Now().UnixMilli()
			hits := slices.Repeat([]limiter.Hit{{Event: event, Features: events.Features{"ip": "192.0.2.1"}, Cost: 1}}, random.IntN(4))
			results, err := testkit.Pick(random, processes...).Hits(t.Context(), hits)
			require.NoError(t, err)
			for _, result := range results {
				d, filled := result.Decision, fill(now)
				require.Equal(t, filled.level <= (tokens-1)*token, d.Allowed, "%+v", d)
				if !d.Allowed {
					continue
				}
				require.Equal(t, (filled.level+rate-1)/rate, d.Wait.Milliseconds())
				if d.Wait == 0 {
					admitted = append(admitted, engine.Reserved{Time: now})
					require.Empty(t, result.Reserved, "it has its turn")
					continue
				}
				require.Len(t, result.Reserved, 1)
				require.Equal(t, now+d.Wait.Milliseconds(), result.Reserved[0].Ends)
				admitted, taken = append(admitted, result.Reserved[0]), append(taken, result.Reserved[0])
			}
			if random.IntN(2) > 0 || len(taken) == 0 {
				continue
			}
			i := random.IntN(len(taken))
			if random.IntN(3) == 0 { // the one that has waited for longest
				i = slices.IndexFunc(taken, func(r engine.Reserved) bool { return r.Ends > now })
				if i < 0 {
					i = 0
				}
			}
			r := taken[i]
			switch err := testkit.Pick(random, processes...).keeps.Settle(t.Context(), r, 0); {
			case now >= r.Ends:
				require.ErrorIs(t, err, engine.ErrEnded)
				taken = slices.Delete(taken, i, i+1)
				last++
			case slices.Contains(taken[:i], r) || slices.Contains(taken[i+1:], r): // it was given back before
				require.NoError(t, err)
			default:
				require.NoError(t, err)
				taken = append(taken, r)
				admitted = slices.DeleteFunc(admitted, func(other engine.Reserved) bool { return other == r })
				if given++; now-r.Time > 2*grace.Milliseconds() {
					late++
				}
			}
		}
		require.Greater(t, min(given, late, last), 5)
	})
}
