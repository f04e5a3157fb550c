package eventlog_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/farstore"
	"github.com/counterd/counterd/internal/testkit/mutant"
)

// A calm world in virtual time: processes hit the same logs, some hits at once and others alone, and nothing fails. Each
// server then holds exactly what was admitted. A hit that overlaps no other is admitted exactly if it has room, and
// RetryAfter is exact. Only the public calls of limiters and of stores are used.

// calmLimits are the limits of calm worlds.
var calmLimits = map[string][]string{
	"sliding logs": {
		"[{per: ip, rate: 3/s, algorithm: sliding-log}]",
		"[{per: ip, rate: [2/s, 5/8s, 9/m], algorithm: sliding-log}]",
		"[{per: ip, rate: [4/m, 8/h], algorithm: sliding-log}, {per: user, rate: 3/20s, algorithm: sliding-log}]",
		"[{per: ip, rate: 6/20s, algorithm: sliding-log, count: all}, {per: user, rate: 3/5s, algorithm: sliding-log}]",
		"[{per: [], rate: 7/10s, algorithm: sliding-log, throttle: soft 50%}, {per: [ip, user], rate: 2/5s, algorithm: sliding-log}]",
	},
	"token buckets": {
		"[{per: ip, rate: 2/s, burst: 4}]",
		"[{per: ip, rate: 7/20s, burst: 3}, {per: user, rate: 6/m, burst: 5}]",
		"[{per: ip, rate: 1/s, burst: 3}, {per: user, rate: 5/10s, algorithm: sliding-log}]",
	},
	"leaky buckets": {
		"[{per: ip, rate: 2/s, queue: 3}]",
		"[{per: ip, rate: 7/20s, queue: 4}]",
	},
}

var calmIPs, calmUsers = [2]string{"192.0.2.1", "192.0.2.2"}, [2]string{"ada", "bob"}

// calmHit is a hit and its decision.
type calmHit struct {
	limiter.Hit
	began, ended int64 // milliseconds
	alone        bool
	decision     events.Decision
}

type calmWorld struct {
	rng       *rand.Rand
	servers   *farstore.Store
	replicas  int
	event     *events.Event
	processes []*limiter.Limiter
	forgetful bool // denials are not cached
	hits      []*calmHit
}

// newCalmLimiter returns the limiter of a process.
func newCalmLimiter(t *testing.T, st store.Store, config limiter.Config) *limiter.Limiter {
	l, err := limiter.New(config, newEngine(t, st, nil))
	require.NoError(t, err)
	return l
}

// runCalm runs the world of a seed.
func runCalm(t *testing.T, seed uint64, replicas int, limits []string) *calmWorld {
	w := &calmWorld{rng: rand.New(rand.NewPCG(seed, 5)), replicas: replicas}
	w.event = newEvent(t, 1, testkit.Pick(w.rng, limits...))
	w.servers = farstore.New(seed, replicas, testkit.Pick(w.rng, 150*time.Microsecond, time.Millisecond))
	w.forgetful = w.rng.IntN(2) == 0
	time.Sleep(time.Duration(w.rng.Int64N(int64(24 * time.Hour))).Truncate(time.Millisecond))
	share := w.rng.Float64() // of the longest pause
	random := func(below time.Duration) time.Duration { return time.Duration(share * float64(below)) }
	for range 1 + w.rng.IntN(4) {
		w.processes = append(w.processes, newCalmLimiter(t, w.servers, limiter.Config{NoCachedDenials: w.forgetful, Random: random, Timeout: grace / 2}))
	}
	for range 20 {
		atOnce := testkit.Pick(w.rng, 1, 1, 1, 2, 4, 7)
		var running sync.WaitGroup
		for range atOnce {
			after, process := time.Duration(w.rng.Int64N(int64(3*time.Millisecond))), testkit.Pick(w.rng, w.processes...)
			who := events.Features{"ip": calmIPs[w.rng.IntN(3)/2], "user": calmUsers[w.rng.IntN(3)/2]}
			h := &calmHit{Hit: limiter.Hit{Event: w.event, Features: who, Cost: testkit.Pick[int64](w.rng, 1, 1, 1, 2, 3)}, alone: atOnce == 1}
			w.hits = append(w.hits, h)
			running.Go(func() {
				time.Sleep(after)
				h.began = time.Now().UnixMilli()
				var err error
				h.decision, err = process.Hit(t.Context(), h.Hit)
				assert.NoError(t, err)
				h.ended = time.Now().UnixMilli()
			})
		}
		running.Wait()
		time.Sleep(time.Duration(w.rng.Int64N(int64(testkit.Pick(w.rng, 100*time.Millisecond, time.Second, 5*time.Second, time.Minute)))))
	}
	w.servers.Wait()
	time.Sleep(10 * time.Millisecond)
	return w
}

// A clock returns the time of a hit, which is between its beginning and its end.
type clock func(*calmHit) int64

func earliest(h *calmHit) int64 { return h.began }
func latest(h *calmHit) int64   { return h.ended }

// held returns the part of the first n hits that the limit counts at a time, in a unit: a token bucket counts in the part of a
// token that returns in a millisecond divided by N.
func (w *calmWorld) held(n int, counter string, limit events.Limit, now int64, times clock) (held, unit int64) {
	window, unit, last := limit.Window.Milliseconds(), int64(1), int64(0)
	if limit.Burst > 0 {
		unit = window
	}
	hits := slices.Clone(w.hits[:n])
	slices.SortStableFunc(hits, func(a, b *calmHit) int { return cmp.Compare(times(a), times(b)) })
	for _, h := range hits {
		at := times(h)
		switch {
		case !h.countsOn(counter):
		case limit.Burst > 0:
			held, last = max(held-(at-last)*limit.N, 0)+h.Cost*unit, at
		case shares(limit, at, now):
			held += h.Cost
		}
	}
	if limit.Burst > 0 {
		held = max(held-(now-last)*limit.N, 0)
	}
	return held, unit
}

// shares reports whether a time is in the limit's window of now. Windows from a minute on slide by seconds.
func shares(limit events.Limit, at, now int64) bool {
	window := limit.Window.Milliseconds()
	if limit.Window < time.Minute {
		return at > now-window
	}
	return at/1000 > now/1000-window/1000
}

// countsOn reports whether the hit counts on the counter.
func (h *calmHit) countsOn(counter string) bool {
	applied, _ := h.Event.Apply(nil, h.Features)
	return slices.ContainsFunc(applied, func(a events.Applied) bool {
		return a.ID == counter && (h.decision.Allowed || a.Rule.Count == events.CountAll)
	})
}

// eachLimit calls visit with each limit of the features.
func (w *calmWorld) eachLimit(who events.Features, visit func(i int, counter string, limit events.Limit, ceiling int64)) {
	applied, _ := w.event.Apply(nil, who)
	i := 0
	for _, a := range applied {
		for _, limit := range a.Rule.LimitsOf(a.Counter.Feature) {
			visit(i, a.ID, limit, a.Rule.Throttle.Ceiling(limit.Most()))
			i++
		}
	}
}

// fits reports whether the first n hits leave room for the hit at that time.
func (w *calmWorld) fits(n int, h *calmHit, at int64, times clock) bool {
	fits := true
	w.eachLimit(h.Features, func(_ int, counter string, limit events.Limit, ceiling int64) {
		held, unit := w.held(n, counter, limit, at, times)
		fits = fits && held+h.Cost*unit <= ceiling*unit
	})
	return fits
}

// fault returns what is wrong with the n-th hit, which is alone, or an empty string.
func (w *calmWorld) fault(n int) string {
	h := w.hits[n]
	d := h.decision
	if d.Allowed && !w.fits(n, h, h.ended, earliest) {
		return "is admitted without room"
	}
	if !d.Allowed && w.fits(n, h, h.began, latest) {
		return "is denied with room"
	}
	if d.Allowed || d.RetryAfter == events.Never {
		return ""
	}
	wait := d.RetryAfter.Milliseconds() // from a time between the beginning and the end
	if !w.fits(n+1, h, h.ended+wait, earliest) {
		return fmt.Sprintf("does not fit after %s", d.RetryAfter)
	}
	if w.fits(n+1, h, h.began+wait-1, latest) {
		return fmt.Sprintf("fits before %s", d.RetryAfter)
	}
	return ""
}

// leaks compares what each server holds with what was counted.
func (w *calmWorld) leaks(t *testing.T) (faults []string) {
	for server := range w.replicas {
		reader := newCalmLimiter(t, w.servers.Server(server), limiter.Config{})
		for i := range 4 {
			at, who := time.Now().UnixMilli(), events.Features{"ip": calmIPs[i/2], "user": calmUsers[i%2]}
			d, err := reader.Check(t.Context(), limiter.Hit{Event: w.event, Features: who, Cost: 1})
			require.NoError(t, err)
			w.eachLimit(who, func(i int, counter string, limit events.Limit, _ int64) {
				least, unit := w.held(len(w.hits), counter, limit, at, earliest)
				most, _ := w.held(len(w.hits), counter, limit, at, latest)
				if count := d.Limits[i].Count; count < (least+unit-1)/unit || count > (most+unit-1)/unit {
					faults = append(faults, fmt.Sprintf("server %d counts %d of %s, and %d to %d units of %d were admitted", server, count, limit.Name, least, most, unit))
				}
			})
		}
	}
	return faults
}

// Nothing leaks from a log, a hit that overlaps no other is denied only without room, and RetryAfter is exact.
func TestCalmLogs(t *testing.T) {
	for name, limits := range calmLimits {
		for replicas := 1; replicas <= 2; replicas++ {
			t.Run(fmt.Sprint(name, " ", replicas), func(t *testing.T) {
				alone, denied, stale := 0, 0, 0
				for seed := range mutant.Seeds(t, testkit.Seeds(1000)) {
					bubble.Test(t, func(t *testing.T) {
						w := runCalm(t, seed, replicas, limits)
						faults := w.leaks(t)
						for n, h := range w.hits {
							require.False(t, slices.ContainsFunc(h.decision.Limits, func(s events.LimitState) bool { return s.Failed }))
							if !h.alone {
								continue
							}
							alone++
							fault := w.fault(n)
							if !h.decision.Allowed {
								denied++
							}
							if fault != "" && !h.decision.Allowed && !w.forgetful {
								stale++
							} else if fault != "" {
								faults = append(faults, fmt.Sprintf("hit %d is alone and %s: %+v", n, fault, h.decision))
							}
						}
						assert.Empty(t, faults, "seed %d", seed)
					})
				}
				if mutant.Tested() {
					return
				}
				t.Logf("%d hits were alone, %d of them were denied, %d by a stale cache", alone, denied, stale)
				require.Positive(t, denied, "limits that do not bind prove nothing")
			})
		}
	}
}

// What a log is for: without it a calm world finds a fault.
func TestCalmLogsFindMutants(t *testing.T) {
	mutant.Test(t, []mutant.Mutant{
		{
			Name: "a hit stays that another counter denies", File: "batch.go", Test: "TestCalmLogs/sliding_logs_1",
			Old: "if e.kept < counts {",
			New: "if e.kept+1 < counts {",
		},
		{
			Name: "a hit stays on replicas", File: "batch.go", Test: "TestCalmLogs/sliding_logs_2",
			Old: "if e.kept < counts {",
			New: "if e.kept+1 < counts {",
		},
		{
			Name: "events leave a millisecond late", File: "journal/limit.go", Test: "TestCalmLogs/sliding_logs_1",
			Old: "return time - time%l.slides() + l.Window }",
			New: "return time - time%l.slides() + l.Window + 1 }",
		},
		{
			Name: "tokens return slowly", File: "journal/bucket.go", Test: "TestCalmLogs/token_buckets_1",
			Old: "min(m.level-passed*l.Rate, ",
			New: "min(m.level-passed*l.Rate/2, ",
		},
		{
			Name: "a leaky bucket has room a millisecond late", File: "journal/bucket.go", Test: "TestCalmLogs/leaky_buckets_2",
			Old: "return now + (level-room*l.Window+l.Rate-1)/l.Rate\n",
			New: "return now + (level-room*l.Window+l.Rate-1)/l.Rate + 1\n",
		},
	})
}
