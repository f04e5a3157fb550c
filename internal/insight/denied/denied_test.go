package denied_test

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/insight/denied"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/internal/testkit/storestest"
)

// A flood that memory denies is counted to the last hit, in the minute of each, within two seconds; with one write a
// second for each counter.
func TestAFloodFromMemory(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newProcess(t, storestest.Embedded(time.Now), "[{per: user, rate: 3/1h}]")
		defer p.Close()
		rng := rand.New(rand.NewPCG(1, 2))
		want := map[string]map[int64]int64{"bob": {}, "eve": {}}
		for range 20_000 {
			user := "bob"
			if rng.IntN(3) == 0 {
				user = "eve"
			}
			if !p.hit(t, user) {
				want[user][time.Now().Unix()/60*60]++
			}
			time.Sleep(time.Duration(rng.Int64N(int64(15 * time.Millisecond))))
			if rest := time.Second - time.Duration(time.Now().Nanosecond()); rest <= 10*time.Millisecond {
				time.Sleep(rest + time.Millisecond) // what comes then may count in the next second
			}
		}
		settle()
		assert.Greater(t, p.limiter.Stats().CachedDenials, int64(19_000))
		for user := range want {
			require.Greater(t, len(want[user]), 2, "minutes")
			assert.Equal(t, want[user], p.history(t, user, engine.Minute))
			var sum int64
			for _, n := range want[user] {
				sum += n
			}
			for _, level := range []engine.Level{engine.Hour, engine.Day} {
				assert.Equal(t, []int64{sum}, slices.Collect(maps.Values(p.history(t, user, level))), "%s", level)
			}
			writes := p.writes.of[p.counterOf(user).ID()]
			require.Greater(t, len(writes), 150)
			for i, at := range writes[1:] {
				require.GreaterOrEqual(t, at.Sub(writes[i]), time.Second)
			}
		}
		assert.Zero(t, p.Lost())
	})
}

// What counts as a denied hit, and of which features.
func TestWhatIsCounted(t *testing.T) {
	feature := func(user string) events.Feature {
		counter, _ := events.CounterOf([]byte("login"), 0, [2]string{"user", user})
		return counter.Feature
	}
	denies := func(feature events.Feature) events.LimitState { return events.LimitState{Feature: feature} }
	bob, eve, all := feature("bob"), feature("eve"), events.Feature{}
	login := limiter.Hit{Event: &events.Event{Name: "login"}, Cost: 5}
	for name, test := range map[string]struct {
		hit      limiter.Hit
		decision events.Decision
		call     limiter.Call
		want     map[events.Feature]int64
	}{
		"denied": {login, events.Decision{Limits: []events.LimitState{denies(bob)}}, limiter.CallHit, map[events.Feature]int64{bob: 1}},
		"by each of its features": {login, events.Decision{Limits: []events.LimitState{denies(bob), denies(eve), denies(all)}}, limiter.CallHit,
			map[events.Feature]int64{bob: 1, eve: 1, all: 1}},
		"by several limits": {login, events.Decision{Limits: []events.LimitState{denies(bob), denies(eve), denies(bob)}}, limiter.CallHit,
			map[events.Feature]int64{bob: 1, eve: 1}},
		"by one of two limits": {login, events.Decision{Limits: []events.LimitState{{Feature: bob, Allowed: true}, denies(bob), {Feature: eve, Allowed: true}}},
			limiter.CallHit, map[events.Feature]int64{bob: 1}},
		"by a shadow, and another": {login, events.Decision{Limits: []events.LimitState{{Feature: bob, Shadow: true}, denies(bob), {Feature: eve, Shadow: true}}},
			limiter.CallHit, map[events.Feature]int64{bob: 1}},
		"by a list":        {login, events.Decision{Limits: []events.LimitState{{Feature: bob, Unknown: true, Listing: events.Denied}}}, limiter.CallHit, map[events.Feature]int64{bob: 1}},
		"admitted":         {login, events.Decision{Allowed: true, Limits: []events.LimitState{{Feature: bob, Shadow: true}}}, limiter.CallHit, nil},
		"a check":          {login, events.Decision{Limits: []events.LimitState{denies(bob)}}, limiter.CallCheck, nil},
		"without a store":  {login, events.Decision{Unavailable: true, Limits: []events.LimitState{{Feature: bob, Failed: true, Unknown: true}}}, limiter.CallHit, nil},
		"no event":         {limiter.Hit{}, events.Decision{Limits: []events.LimitState{denies(bob)}}, limiter.CallHit, nil},
		"a domain's limit": {limiter.Hit{Event: &events.Event{Name: "rls/edge"}}, events.Decision{Limits: []events.LimitState{denies(bob)}}, limiter.CallHit, nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				p := newProcess(t, storestest.Embedded(time.Now), "[{per: user, rate: 3/1h}]")
				p.OnDecision(t.Context(), test.hit, &test.decision, test.call)
				p.Close()
				got := map[events.Feature]int64{}
				for _, feature := range []events.Feature{bob, eve, all} {
					count, err := p.counters.Count(t.Context(), denied.CounterOf(p.rules.Events["login"], feature), time.Hour, time.Time{})
					require.NoError(t, err)
					if count.Count != 0 {
						got[feature] = count.Count
					}
				}
				if test.want == nil {
					test.want = map[events.Feature]int64{}
				}
				assert.Equal(t, test.want, got)
				assert.Len(t, p.writes.of, len(test.want))
			})
		})
	}
}

// A hit of several parts that is denied counts on the counters that deny it.
func TestPartsOfAHit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newProcess(t, storestest.Embedded(time.Now), "[{per: user, rate: 3/1h}]")
		login := p.rules.Events["login"]
		var parts []limiter.Part
		for _, user := range []string{"bob", "eve", "bob"} {
			applied, err := login.Apply(nil, events.Features{"user": user})
			require.NoError(t, err)
			parts = append(parts, limiter.Part{Applied: applied[0], Cost: 2})
		}
		for range 10 {
			d, err := p.limiter.Hit(t.Context(), limiter.Hit{Event: login, Parts: parts})
			require.NoError(t, err)
			require.False(t, d.Allowed)
		}
		p.Close()
		assert.Equal(t, int64(10), p.total(t, "bob"))
		assert.Zero(t, p.total(t, "eve"))
	})
}

// The counter of denied hits is that of no event of the rules: they have no slash in their names.
func TestNoEventHasItsCounters(t *testing.T) {
	p := rulesOf(t, "[{per: user, rate: 3/30d}, {per: [], rate: 5/h}]")
	counter := denied.CounterOf(p.Events["login"], events.Feature{})
	assert.False(t, events.ValidName(counter.Event))
	assert.Equal(t, 30*24*time.Hour, counter.Remembered())
	assert.Equal(t, events.Minute, counter.Precision)
	assert.Equal(t, 24*time.Hour, denied.CounterOf(rulesOf(t, "[{per: user, rate: 3/m}]").Events["login"], events.Feature{}).Remembered())
}

// Features that are new all the time take memory up to a bound, and what is beyond is counted as dropped. When they
// are written there is room again.
func TestMemory(t *testing.T) {
	for name, test := range map[string]struct {
		padding string
		fit     int64
	}{
		"features":            {"", denied.MaxCounters},
		"features of 236 B":   {strings.Repeat("x", 236), denied.MaxBytes / 256},
		"features of 1,000 B": {strings.Repeat("x", 1000), denied.MaxBytes / (1000 + int64(len("login"+"user"+"user0000000")))},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				p := newProcess(t, storestest.Embedded(time.Now), "[{per: user, rate: 3/1h}]")
				p.writes.onEach(func(context.Context) error { return errors.New("not to be kept") })
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				for n := range 100_000 {
					p.deny(userOf(n) + test.padding)
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				took := after.HeapAlloc - before.HeapAlloc
				t.Logf("%d KB", took>>10)
				assert.Less(t, took, uint64(32<<20))
				assert.Equal(t, denied.Lost{Full: 100_000 - test.fit}, p.Lost())
				p.deny(userOf(0) + test.padding) // one that is gathered already
				assert.Equal(t, denied.Lost{Full: 100_000 - test.fit}, p.Lost())
				settle()
				assert.Equal(t, denied.Lost{Full: 100_000 - test.fit, Store: test.fit + 1}, p.Lost())
				for n := range 100_000 {
					p.deny(userOf(n) + test.padding)
				}
				p.Close()
				assert.Equal(t, denied.Lost{Full: 2 * (100_000 - test.fit), Store: 2*test.fit + 1}, p.Lost())
			})
		})
	}
}

// Processes on the same servers add up, on either engine of the limits.
func TestProcessesAddUp(t *testing.T) {
	servers := memcachedtest.StartMany(t, 2)
	for user, limits := range map[string]string{"bob": "[{per: user, rate: 3/1h}]", "eve": "[{per: user, rate: 3/1h, algorithm: sliding-log}]"} {
		var all [2]*process
		for i := range all {
			all[i] = newProcess(t, storestest.OpenFleet(t, time.Now, servers...), limits)
		}
		var refused atomic.Int64
		var callers sync.WaitGroup
		for i := range 8 {
			callers.Go(func() {
				for range 500 {
					if !all[i%2].hit(t, user) {
						refused.Add(1)
					}
				}
			})
		}
		callers.Wait()
		for _, p := range all {
			p.Close()
			assert.Zero(t, p.Lost())
		}
		assert.Equal(t, int64(8*500-3), refused.Load())
		assert.Equal(t, refused.Load(), all[0].total(t, user))
	}
}

// While the store is down hits are lost, and counted as that, once; after that all are counted.
func TestTheStoreIsDown(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newProcess(t, storestest.Embedded(time.Now), "[{per: user, rate: 3/1h}]")
		defer p.Close()
		p.writes.onEach(func(context.Context) error { return errors.New("down") })
		for range 100 {
			p.deny("bob")
		}
		p.deny("eve")
		settle()
		assert.Equal(t, denied.Lost{Store: 101}, p.Lost())
		p.writes.onEach(nil)
		settle()
		assert.Zero(t, p.total(t, "bob"), "what may have been counted is not repeated")
		for range 10 {
			p.deny("bob")
		}
		settle()
		assert.Equal(t, int64(10), p.total(t, "bob"))
		assert.Equal(t, denied.Lost{Store: 101}, p.Lost())
	})
}

// While the store is slow hits are gathered, and written at once when it is done.
func TestTheStoreIsSlow(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newProcess(t, storestest.Embedded(time.Now), "[{per: user, rate: 3/1h}]")
		defer p.Close()
		var writing, most atomic.Int64
		p.writes.onEach(func(context.Context) error {
			most.Store(max(most.Load(), writing.Add(1)))
			defer writing.Add(-1)
			time.Sleep(10 * time.Second)
			return nil
		})
		for range 3000 {
			p.deny("bob")
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(22 * time.Second)
		assert.Equal(t, int64(3000), p.total(t, "bob"))
		assert.Equal(t, int64(1), most.Load())
		assert.LessOrEqual(t, len(p.writes.of[p.counterOf("bob").ID()]), 4)
	})
}

// Close writes what is left, also while a write is under way; on a store that hangs it gives up in time.
func TestClose(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newProcess(t, storestest.Embedded(time.Now), "[{per: user, rate: 3/1h}]")
		began := time.Now()
		p.deny("bob")
		p.Close()
		assert.Zero(t, time.Since(began))
		assert.Equal(t, int64(1), p.total(t, "bob"))

		p = newProcess(t, storestest.Embedded(time.Now), "[{per: user, rate: 3/1h}]")
		p.writes.onEach(func(context.Context) error { time.Sleep(time.Second); return nil })
		p.deny("bob")
		time.Sleep(1100 * time.Millisecond)
		p.deny("bob")
		p.Close()
		assert.Equal(t, int64(2), p.total(t, "bob"))

		p = newProcess(t, storestest.Embedded(time.Now), "[{per: user, rate: 3/1h}]")
		p.writes.onEach(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		for n := range 1000 {
			p.deny(userOf(n))
		}
		began = time.Now()
		p.Close()
		assert.Equal(t, denied.CloseTimeout, time.Since(began))
		assert.Equal(t, denied.Lost{Store: 1000}, p.Lost())
	})
}

// What was gathered of an event that a reload has removed is left out.
func TestARemovedEvent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newProcess(t, storestest.Embedded(time.Now), "[{per: user, rate: 3/1h}]")
		rules := p.rules
		var removed atomic.Bool
		h := denied.Start(denied.Config{Counters: p.writes, Rules: func() *events.Rules {
			if removed.Load() {
				return &events.Rules{}
			}
			return rules
		}})
		p.Close()
		p.History = h
		p.deny("bob")
		removed.Store(true)
		settle()
		assert.Empty(t, p.writes.of)
		removed.Store(false)
		p.deny("bob")
		p.Close()
		assert.Equal(t, int64(1), p.total(t, "bob"))
		assert.Zero(t, p.Lost())
	})
}

// Events that are not in the rules, such as domains of Envoy, take no room.
func TestOtherEventsTakeNoRoom(t *testing.T) {
	p := newProcess(t, storestest.Embedded(time.Now), "[{per: user, rate: 3/1h}]")
	defer p.Close()
	for n := range denied.MaxCounters + 1 {
		counter, _ := events.CounterOf([]byte("rls/edge"), 0, [2]string{"user", userOf(n)})
		p.OnDecision(t.Context(), limiter.Hit{Event: &events.Event{Name: "rls/edge"}},
			&events.Decision{Limits: []events.LimitState{{Feature: counter.Feature}}}, limiter.CallHit)
	}
	assert.Zero(t, p.Lost())
}

// What a denied hit takes: of a feature that is gathered already, and of one that is not.
func BenchmarkOnDecision(b *testing.B) {
	p := newProcess(b, storestest.Embedded(time.Now), "[{per: user, rate: 3/1h}]")
	p.writes.onEach(func(context.Context) error { return errors.New("not to be kept") })
	defer func() { p.Close() }()
	hit := limiter.Hit{Event: p.rules.Events["login"]}
	decisions := make([]events.Decision, denied.MaxCounters)
	for i := range decisions {
		counter, _ := events.CounterOf([]byte("login"), 0, [2]string{"user", userOf(i)})
		decisions[i].Limits = []events.LimitState{{Feature: counter.Feature}}
	}
	for name, features := range map[string]int{"one feature": 1, "1,000 features": 1000, "new features": len(decisions)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%denied.MaxCounters == 0 {
					b.StopTimer()
					p.Close()
					p.History = denied.Start(denied.Config{Rules: func() *events.Rules { return p.rules }, Counters: p.writes})
					b.StartTimer()
				}
				p.OnDecision(b.Context(), hit, &decisions[i%features], limiter.CallHit)
			}
		})
	}
}
