package eventlog_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/oracle"
	"github.com/counterd/counterd/internal/testkit/storestest"
)

// Of 200 hits at once as many are admitted as the limit allows, by three processes, also with
// several limits, several counters, and costs in batches.
func TestExactlyTheLimit(t *testing.T) {
	storestest.OnEverySoloStore(t, time.Now, func(t *testing.T, open func() store.Store) {
		var processes []*process
		for range 3 {
			// Retries may need their time on a busy machine.
			processes = append(processes, newProcess(t, open(), nil, limiter.Config{OnStoreError: func(err error) { t.Error(err) }}))
		}
		last := newProcess(t, open(), nil, limiter.Config{NoCachedDenials: true})
		for name, test := range map[string]struct {
			limits string
			cost   func(i int) int64
			at     int // hits of one call
			want   int64
		}{
			"one limit":               {"[{per: ip, rate: 10/h}]", nil, 1, 10},
			"four limits":             {"[{per: ip, rate: [10/h, 20/2h, 12/3h, 30/d]}]", nil, 1, 10},
			"two counters":            {"[{per: ip, rate: 10/h}, {per: user, rate: 10/2h}]", nil, 1, 10},
			"batches":                 {"[{per: ip, rate: 10/h}]", nil, 8, 10},
			"batches on two counters": {"[{per: ip, rate: 10/h}, {per: user, rate: [12/h, 10/d]}]", nil, 8, 10},
			"costs":                   {"[{per: ip, rate: 10/h}]", func(i int) int64 { return 1 + int64(i%2) }, 8, 10},
		} {
			t.Run(name, func(t *testing.T) {
				rounds, callers := int(testkit.Seeds(30)), testkit.Times(200) // under the race detector 200 need their whole timeout
				for round := range rounds {
					event := newEvent(t, 1, test.limits)
					event.Name = fmt.Sprint(name, round)
					var admitted atomic.Int64
					var running sync.WaitGroup
					for caller := range callers / test.at {
						running.Go(func() {
							var hits []limiter.Hit
							for i := range test.at {
								cost := int64(1)
								if test.cost != nil {
									cost = test.cost(caller + i)
								}
								hits = append(hits, limiter.Hit{Event: event, Features: someUser, Cost: cost})
							}
							results, err := processes[caller%3].Hits(context.Background(), hits)
							if !assert.NoError(t, err) {
								return
							}
							for i, r := range results {
								if assert.NoError(t, r.Err) && r.Decision.Allowed {
									admitted.Add(hits[i].Cost)
								}
							}
						})
					}
					running.Wait()
					// On a busy machine hits on two counters may give up before others are void.
					for strings.Contains(test.limits, "user") {
						if !last.hit(event, someUser).Allowed {
							break
						}
						admitted.Add(1)
					}
					require.Equal(t, test.want, admitted.Load(), "round %d", round)
				}
			})
		}
	})
}

// holds returns what counts in the window that ends now, by milliseconds, or by seconds if it is long.
func holds(log *oracle.Log, counter string, window time.Duration, now int64) int64 {
	if window < time.Minute {
		return log.Sum(counter, now-window.Milliseconds()+1, oracle.Forever)
	}
	return log.Sum(counter, (now/1000-int64(window/time.Second)+1)*1000, oracle.Forever)
}

// Decisions are those of a log that forgets nothing, for random hits, whatever the rules; the waits
// are the first milliseconds in which the limits have room.
func TestDecisionsEqualALog(t *testing.T) {
	for i, limits := range append(slices.Clone(testkit.Limits), testkit.CountingLimits...) {
		if i == 8 || i == 9 {
			continue // a coarser precision
		}
		onVirtualTime(t, limits, func(t *testing.T) {
			clock := testkit.NewClock(time.Time{})
			kept := &watched{Store: storestest.Embedded(clock.Now)}
			event := newEvent(t, 1, limits)
			processes := []*process{newProcess(t, kept, clock.Now, limiter.Config{}), newProcess(t, kept, clock.Now, limiter.Config{NoCachedDenials: true})}
			log, random := oracle.NewLog(), rand.New(rand.NewPCG(uint64(i), 7))
			for range 400 {
				clock.Advance(testkit.Step(random).Truncate(time.Millisecond))
				now := clock.Now().UnixMilli()
				features := events.Features{"ip": testkit.Pick(random, "192.0.2.1", "192.0.2.2"), "user": testkit.Pick(random, "ada", "bob")}
				caches, cost, asks := random.IntN(2) == 0, 1+random.Int64N(6)/4, random.IntN(5) == 0
				p := processes[1]
				if caches {
					p = processes[0]
				}
				h := limiter.Hit{Event: event, Features: features, Cost: cost}
				decide := p.Hit
				if asks {
					decide = p.Check
				}
				d, err := decide(t.Context(), h)
				require.NoError(t, err)
				applied, err := event.Apply(nil, features)
				require.NoError(t, err)
				want, i := true, 0
				for _, a := range applied {
					for _, limit := range a.Rule.Limits {
						fits := holds(log, a.ID, limit.Window, now)+cost <= a.Rule.Throttle.Ceiling(limit.N)
						require.Equal(t, fits, d.Limits[i].Allowed, "%+v", d.Limits[i])
						want = want && (fits || a.Rule.Shadow)
						i++
					}
				}
				require.Equal(t, want, d.Allowed, "%+v", d)
				for _, a := range applied {
					if !asks && (want || a.Rule.Count == events.CountAll) {
						log.Add(a.ID, now, cost)
					}
				}
				i = 0
				for _, a := range applied {
					for _, limit := range a.Rule.Limits {
						s := d.Limits[i]
						i++
						if held := holds(log, a.ID, limit.Window, now); s.Exact {
							require.Equal(t, held, s.Count, "%+v", s)
						} else { // events may have left the window of a cached denial
							require.True(t, caches && !asks, "%+v", s)
							require.GreaterOrEqual(t, s.Count, held, "%+v", s)
						}
						if ceiling := a.Rule.Throttle.Ceiling(limit.N); s.Reset > 0 && s.Reset != events.Never {
							at := clock.Now().Add(s.Reset).UnixMilli()
							require.LessOrEqual(t, holds(log, a.ID, limit.Window, at)+cost, ceiling, "%+v", s)
							require.Greater(t, holds(log, a.ID, limit.Window, at-1)+cost, ceiling, "%+v", s)
						}
					}
				}
			}
			require.Empty(t, append(processes[0].faults, processes[1].faults...))
		})
	}
}

// A cached denial of a log holds although its window moves: its count is then no less than that of
// the window, and does not claim to be exact.
func TestACachedDenialIsNotExact(t *testing.T) {
	clock := testkit.NewClock(time.Unix(1_700_000_040, 500_000_000)) // half a second into a minute
	event := newEvent(t, 1, "[{per: ip, rate: 10/m}]")
	st := storestest.Embedded(clock.Now)
	p, other := newProcess(t, st, clock.Now, limiter.Config{}), newProcess(t, st, clock.Now, limiter.Config{})
	p.costs(event, someUser, 4)
	clock.Advance(time.Second)
	p.costs(event, someUser, 6)
	clock.Advance(58*time.Second + 400*time.Millisecond)
	denied := p.costs(event, someUser, 8).Limits[0]
	require.False(t, denied.Allowed)
	require.Equal(t, int64(10), denied.Count)
	require.True(t, denied.Exact)

	clock.Advance(300 * time.Millisecond) // the first four have left the window
	cached := p.costs(event, someUser, 8).Limits[0]
	require.EqualValues(t, 1, p.Stats().CachedDenials)
	require.False(t, cached.Allowed)
	require.False(t, cached.Exact)
	read := other.costs(event, someUser, 8).Limits[0]
	require.False(t, read.Allowed)
	require.True(t, read.Exact)
	require.Equal(t, int64(6), read.Count)
	require.GreaterOrEqual(t, cached.Count, read.Count)
}

// between is a store that another process asks between the append of a hit and its read.
type between struct {
	store.Store
	counter string
	then    func() // once; nil: nothing
}

func (b *between) Do(ctx context.Context, ops ...*store.Op) {
	for _, op := range ops {
		then, reads := b.then, op.Reads
		if then == nil || op.Counter != b.counter || len(op.Writes) == 0 || len(reads) == 0 {
			b.Store.Do(ctx, op)
			continue
		}
		b.then, op.Reads = nil, nil
		b.Store.Do(ctx, op)
		then()
		read := *op
		read.Writes, read.Reads = nil, reads
		b.Store.Do(ctx, &read)
		op.Reads = read.Reads
	}
}

// The count of a hit is what was ahead of it in the log; when there is room again is by all that its read finds, also
// behind it.
func TestRoomBehindADeniedHit(t *testing.T) {
	clock := testkit.NewClock(time.Unix(1_700_000_040, 500_000_000))
	event := newEvent(t, 1, "[{per: ip, rate: 3/m, count: all, algorithm: sliding-log}, {per: user, rate: 0/m}]")
	st := &between{Store: storestest.Embedded(clock.Now), counter: counterOf(t, event, "ip")}
	p, other := newProcess(t, st, clock.Now, limiter.Config{}), newProcess(t, st, clock.Now, limiter.Config{})
	ip := events.Features{"ip": someUser["ip"]}
	require.True(t, p.hit(event, ip).Allowed)
	st.then = func() { require.EqualValues(t, 3, other.hit(event, ip).Limits[0].Count) }
	d := p.hit(event, someUser)
	require.Nil(t, st.then)
	require.False(t, d.Allowed)
	require.True(t, d.Limits[0].Allowed)
	assert.Equal(t, []any{int64(2), 59_500 * time.Millisecond}, []any{d.Limits[0].Count, d.Limits[0].Reset})
}
