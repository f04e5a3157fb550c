package eventlog_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/internal/testkit/storestest"
)

// What floods a log, by intent or not: rules whose on_error is allow admit no more for it.

// A batch that is too large for a log admits what has room in the limits, and no more.
func TestALargeBatchAdmitsNoMore(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: 500/h}]", limiter.Config{})
	var hits []limiter.Hit
	for i := range 600 { // neighbors are no one entry
		hits = append(hits, limiter.Hit{Event: b.event, Features: someUser, Cost: 16 + int64(i%2)})
	}
	results, err := b.Hits(t.Context(), hits)
	require.NoError(t, err)
	var admitted int64
	for i, r := range results {
		if r.Decision.Allowed {
			admitted += hits[i].Cost
		}
	}
	require.Empty(t, b.faults)
	require.InDelta(t, 492, admitted, 8)
}

// held is a store that holds round trips until so many are under way.
type held struct {
	store.Store
	left  atomic.Int64
	ready chan struct{}
}

func (h *held) Do(ctx context.Context, ops ...*store.Op) {
	if h.left.Add(-1) == 0 {
		close(h.ready)
	}
	<-h.ready
	h.Store.Do(ctx, ops...)
}

// Thousands of appends that are under way at once do not make a log unreadable.
func TestAppendsUnderWay(t *testing.T) {
	increments := testkit.Times(3200) // more than 64 KiB
	b := newBench(t, "[{per: ip, rate: 500/h}]", limiter.Config{})
	require.True(t, b.hit(b.event, someUser).Allowed)
	slow := &held{Store: b.store, ready: make(chan struct{})}
	slow.left.Store(int64(increments))
	logs, counter := newEngine(t, slow, b.clock.Now), ipOf(t, b.event)
	var counted atomic.Int64
	var running sync.WaitGroup
	for range increments {
		running.Go(func() {
			if _, err := logs.Increment(t.Context(), 300, time.Time{}, counter); err == nil {
				counted.Add(1)
			}
		})
	}
	running.Wait()
	require.NotZero(t, counted.Load())
	require.EqualValues(t, 300*counted.Load()+1, b.log().Sum(0, 1<<46))
	require.False(t, b.hit(b.event, someUser).Allowed)
	require.Empty(t, b.faults)
}

// A process whose clock was an hour ahead before, or is far behind, takes nothing away from the limit.
func TestClocksThatAreWrong(t *testing.T) {
	for name, wrong := range map[string]time.Duration{"ahead": time.Hour, "behind": -2*grace - time.Second, "far behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "[{per: ip, rate: 100/m}]", limiter.Config{})
			other := newProcess(t, b.store, func() time.Time { return b.clock.Now().Add(wrong) }, limiter.Config{})
			admitted := 0
			for i := range 600 {
				p := b.process
				if i/60%2 == 1 != (wrong > 0) {
					p = other
				}
				if p.hit(b.event, someUser).Allowed {
					admitted++
				}
			}
			require.Equal(t, 100, admitted)
			require.Empty(t, append(b.faults, other.faults...))
		})
	}
}

// Increments leave room for hits in a log that they fill.
func TestIncrementsLeaveRoomForHits(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: 5/m}]", limiter.Config{})
	logs, counter := newEngine(t, b.store, b.clock.Now), ipOf(t, b.event)
	ago := func(i int) time.Duration { return 10*time.Minute + time.Duration(i)*time.Second } // not in the window of the limit
	b.fill(1000, time.Hour, func(int) int64 { return 1 }, ago)
	failed := 0
	for i := 1000; i < 2500 && failed < 20; i++ {
		if _, err := logs.Increment(t.Context(), 1, b.clock.Now().Add(-ago(i)), counter); err != nil {
			failed++
		}
	}
	require.NotZero(t, failed)
	for i := range 20 {
		require.Equal(t, i < 4, b.hit(b.event, someUser).Allowed, "behind the one that began the log")
	}
	require.Empty(t, b.faults)
}

// Hits that count although they are denied fill a log, and then are left out. They still come again.
func TestIncrementsThatAreLeftOut(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: 3/m, count: all}]", limiter.Config{})
	var hits []limiter.Hit
	for i := range 100 { // neighbors are no one entry
		hits = append(hits, limiter.Hit{Event: b.event, Features: someUser, Cost: 1 + int64(i%2)})
	}
	require.True(t, b.hit(b.event, someUser).Allowed)
	leftOut := false
	for range 60 {
		counted := b.log().Sum(0, 1<<46)
		results, err := b.Hits(t.Context(), hits)
		require.NoError(t, err)
		for _, r := range results {
			require.NoError(t, r.Err)
			require.NotEqual(t, events.Never, r.Decision.RetryAfter)
		}
		leftOut = leftOut || b.log().Sum(0, 1<<46) == counted
	}
	require.True(t, leftOut)
	require.Empty(t, b.faults)
}

// A burst fills a log, whose entries keep their identity while they are young. Checks and hits that are
// denied shorten it later, too.
func TestALogIsShortenedByHitsThatLook(t *testing.T) {
	for name, look := range map[string]func(*bench) bool{
		"a check": func(b *bench) bool { return b.check(b.event, someUser).Allowed },
		"a hit":   func(b *bench) bool { return b.hit(b.event, someUser).Allowed },
	} {
		b := newBench(t, "[{per: ip, rate: 500/h}]", limiter.Config{})
		for range 500 {
			require.True(t, b.hit(b.event, someUser).Allowed)
		}
		require.False(t, b.hit(b.event, someUser).Allowed)
		require.Greater(t, len(b.store.value(t, b.counter)), 2000, name)
		b.clock.Advance(time.Minute)
		require.False(t, look(b), name)
		require.Less(t, len(b.store.value(t, b.counter)), 300, name)
		require.EqualValues(t, 500, b.log().Sum(0, 1<<46), name)
	}
}

// Hits of many costs that another counter denies do not fill a log.
func TestDeniedHitsOfManyCosts(t *testing.T) {
	b := newBench(t, "[{per: user, rate: 200/h}, {per: ip, rate: 100/h}]", limiter.Config{})
	require.True(t, b.costs(b.event, events.Features{"user": someUser["user"]}, 199).Allowed)
	for i := range int64(3000) {
		require.False(t, b.costs(b.event, someUser, 2+i*5%49).Allowed)
		require.Less(t, len(b.store.value(t, b.counter)), journal.MaxSize/4)
		b.clock.Advance(time.Millisecond)
	}
	require.Empty(t, b.faults)
	require.Zero(t, b.log().Sum(0, 1<<46))
}

// A cost above the newer limit never fits.
func TestStaleRulesAndACostThatNeverFits(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: 10/m}]", limiter.Config{})
	newer := newEvent(t, 2, "[{per: ip, rate: 5/m}]")
	require.True(t, b.other(limiter.Config{}).hit(newer, someUser).Allowed)
	require.Equal(t, events.Never, b.costs(b.event, someUser, 7).RetryAfter)
	require.NotEqual(t, events.Never, b.costs(b.event, someUser, 5).RetryAfter)
}

// Rare hits make one round trip, most of the time: the log lives for longer.
func TestRareHits(t *testing.T) {
	for rate, every := range map[string]time.Duration{"500/h": 20 * time.Minute, "2/s": 12 * time.Second, "10/m": 20 * time.Second} {
		b := newBench(t, "[{per: ip, rate: "+rate+"}]", limiter.Config{})
		trips := b.tripsOf(func() {
			for range 300 {
				b.clock.Advance(every)
				require.True(t, b.hit(b.event, someUser).Allowed)
			}
		})
		assert.Less(t, trips, int64(300*8/5), rate) // those after the answer included
	}
}

// A log that was not kept for a while says so to every process once one has found it that knows.
func TestALogThatWasTakenUpAgain(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: 9/h}]", limiter.Config{})
	require.False(t, b.hit(b.event, someUser).Limits[0].Incomplete)
	b.clock.Advance(time.Minute)
	aware := newEvent(t, 1, "[{per: ip, rate: 9/h}]")
	aware.Rules[0].Limits[0].Since = b.clock.Now().Unix()
	require.True(t, b.hit(aware, someUser).Limits[0].Incomplete)
	require.True(t, b.other(limiter.Config{}).hit(b.event, someUser).Limits[0].Incomplete)
	b.clock.Advance(time.Hour + time.Second)
	require.False(t, b.other(limiter.Config{}).hit(b.event, someUser).Limits[0].Incomplete)
}

// Of a batch that is too large for its log, hits that another counter denies take no room from those behind them: as
// many are admitted as fit.
func TestALargeBatchBesideAnotherCounter(t *testing.T) {
	const full, fresh = 100, 700
	for name, limit := range map[string]string{
		"sliding-log":  "rate: 21/5s, algorithm: sliding-log",
		"token-bucket": "rate: 60/m, burst: 21",
	} {
		for _, replicas := range []int{1, 2} {
			t.Run(fmt.Sprint(name, " ", replicas), func(t *testing.T) {
				clock := testkit.NewClock(time.Now())
				var kept store.Store = &watched{Store: storestest.Embedded(clock.Now)}
				if replicas > 1 {
					kept = openReplicas(t, memcachedtest.StartMany(t, replicas))
				}
				counters, logs := besideBuckets(t, kept, clock.Now)
				l, err := limiter.New(limiter.Config{Timeout: grace / 2}, counters, logs)
				require.NoError(t, err)
				event := testkit.Event(t, "[{per: user, rate: 2/10m}, {per: [], "+limit+"}]")
				user := func(i int) events.Features { return events.Features{"user": fmt.Sprint(i)} }
				_, err = l.Hit(t.Context(), limiter.Hit{Event: event, Features: user(-1), Cost: 1}) // there is a log
				require.NoError(t, err)
				clock.Advance(6 * time.Second)
				var hits []limiter.Hit
				for i := range full {
					of, err := event.Counter(user(i))
					require.NoError(t, err)
					_, err = counters.Increment(t.Context(), 2, clock.Now(), of)
					require.NoError(t, err)
					hits = append(hits, limiter.Hit{Event: event, Features: user(i), Cost: 1})
				}
				for i := range fresh { // neighbors are no one entry
					hits = append(hits, limiter.Hit{Event: event, Features: user(full + i), Cost: 1 + int64(i%2)})
				}
				results, err := l.Hits(t.Context(), hits)
				require.NoError(t, err)
				var admitted int64
				for i, r := range results {
					require.NoError(t, r.Err)
					if r.Decision.Allowed {
						require.GreaterOrEqual(t, i, full)
						admitted += hits[i].Cost
					} else if i >= full {
						require.True(t, r.Decision.Limits[0].Allowed)
						require.False(t, r.Decision.Limits[1].Allowed)
						require.Greater(t, r.Decision.RetryAfter, time.Millisecond)
					}
				}
				require.EqualValues(t, 21, admitted)
			})
		}
	}
}
