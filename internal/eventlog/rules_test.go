package eventlog_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/internal/testkit/storestest"
)

// Newer rules take effect with the first hit, looser or stricter.
func TestNewerRules(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: 2/m}]", limiter.Config{})
	for range 3 {
		b.hit(b.event, someUser)
	}
	looser := newEvent(t, 2, "[{per: ip, rate: 5/m}]")
	trips := b.tripsOf(func() {
		d := b.hit(looser, someUser)
		require.True(t, d.Allowed)
		require.EqualValues(t, 3, d.Limits[0].Count)
	})
	require.Equal(t, int64(3), trips, "an append, a rewrite, an append")
	require.EqualValues(t, 2, b.log().Head().Revision)
	require.EqualValues(t, 3, b.log().Sum(0, 1<<46))
	stricter := newEvent(t, 3, "[{per: ip, rate: 4/m}]")
	require.True(t, b.hit(stricter, someUser).Allowed)
	require.False(t, b.hit(stricter, someUser).Allowed)
	require.EqualValues(t, 4, b.log().Head().Limits[0].Ceiling)
	require.EqualValues(t, 4, b.log().Sum(0, 1<<46))
}

// Hits of two versions of the rules in one batch: the log has the limits of the newer ones alone.
func TestTwoVersionsOfTheRulesInABatch(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: 1/m}]", limiter.Config{})
	newer := newEvent(t, 2, "[{per: ip, rate: 3/m}]")
	results, err := b.Hits(t.Context(), []limiter.Hit{
		{Event: b.event, Features: someUser, Cost: 1}, {Event: newer, Features: someUser, Cost: 1},
		{Event: b.event, Features: someUser, Cost: 1}, {Event: newer, Features: someUser, Cost: 1},
	})
	require.NoError(t, err)
	for i, want := range []bool{true, true, false, true} {
		assert.Equal(t, want, results[i].Decision.Allowed, "%d", i)
	}
	require.Len(t, b.log().Head().Limits, 1)
	require.EqualValues(t, 3, b.log().Head().Limits[0].Ceiling)
	require.False(t, b.hit(newer, someUser).Allowed)
}

// A process with older and shorter rules does not shorten the life of a log.
func TestStaleRulesShortenNoLife(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: 10/m}]", limiter.Config{})
	newer, other := newEvent(t, 2, "[{per: ip, rate: 2/h}]"), b.other(limiter.Config{})
	require.True(t, other.hit(newer, someUser).Allowed)
	until := b.log().Head().Until
	require.Greater(t, until, b.clock.Now().Add(time.Hour).UnixMilli())
	require.True(t, b.hit(b.event, someUser).Allowed)
	b.clock.Advance(20 * time.Minute)
	b.hit(b.event, someUser)
	require.GreaterOrEqual(t, b.log().Head().Until, until)
	b.clock.Advance(39 * time.Minute)
	require.False(t, other.hit(newer, someUser).Allowed)

	shorter := newEvent(t, 3, "[{per: ip, rate: 3/m}]")
	require.True(t, other.hit(shorter, someUser).Allowed)
	require.Equal(t, int64(1), b.tripsOf(func() { require.True(t, other.hit(shorter, someUser).Allowed) }))
}

// Shadow limits, and those with an allow list that the hit is on, take no part in the log.
func TestLimitsWithoutAPart(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: 3/m}, {per: ip, rate: 0/m, name: shadow, shadow: true}, {per: ip, rate: 1/m, name: listed, allow: [192.0.2.1]}]", limiter.Config{})
	for i := range 5 {
		d := b.hit(b.event, someUser)
		require.Equal(t, i < 3, d.Allowed)
		require.False(t, d.Limits[1].Allowed)
		require.True(t, d.Limits[2].Allowed)
		require.EqualValues(t, min(i+1, 3), d.Limits[1].Count)
	}
	require.Len(t, b.log().Head().Limits, 1)

	shadow := newBench(t, "[{per: ip, rate: 2/m, shadow: true}]", limiter.Config{})
	for i := range 5 {
		d := shadow.hit(shadow.event, someUser)
		require.True(t, d.Allowed)
		require.Equal(t, i < 2, d.Limits[0].Allowed)
		require.EqualValues(t, i+1, d.Limits[0].Count)
	}
}

// A final denial by one of several counters makes two round trips: the appends and the voids.
func TestAFinalDenialIsNotRetried(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: 1/m}, {per: user, rate: 9/m}]", limiter.Config{NoCachedDenials: true})
	b.hit(b.event, someUser)
	b.clock.Advance(grace / 4) // it is not pending any more
	require.Equal(t, int64(2), b.tripsOf(func() { require.False(t, b.hit(b.event, someUser).Allowed) }))
}

// A hit that another counter is about to deny locks no one out: what it fills is free again.
func TestAPendingHitLocksNoOneOut(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: 1/h}, {per: user, rate: 1/h}]", limiter.Config{})
	victim := b.other(limiter.Config{})
	b.hit(b.event, events.Features{"ip": someUser["ip"]})
	user := counterOf(t, b.event, "user")
	var running sync.WaitGroup
	var begin, once sync.Once
	var void *store.Op
	added, voided := make(chan struct{}), make(chan struct{})
	b.store.before = func(op *store.Op) {
		if op.Counter == user && op.Kind() == 0 {
			<-voided // the victim looks later
		}
		if op.Counter != user || op.Kind() != store.Append || len(op.Reads) > 0 {
			return
		}
		begin.Do(func() {
			void = op
			running.Go(func() {
				assert.True(t, victim.hit(b.event, events.Features{"user": someUser["user"]}).Allowed)
				once.Do(func() { close(added) })
			})
			<-added // the victim has no room yet
		})
	}
	appends := 0
	b.store.after = func(op *store.Op) {
		if op == void {
			close(voided)
		}
		if op.Counter == user && op.Kind() == store.Append && len(op.Reads) > 0 {
			if appends++; appends == 2 {
				once.Do(func() { close(added) })
			}
		}
	}
	require.False(t, b.hit(b.event, someUser).Allowed)
	running.Wait()
}

// A hit that fills a limit and stays denies those behind it as soon as its writer would have voided
// it, and not only when it can be void no more.
func TestAPendingHitThatStaysDeniesSoon(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		kept := storestest.Embedded(time.Now)
		event := newEvent(t, 1, "[{per: ip, rate: 1/h}, {per: user, rate: 9/h}]")
		longest := func(below time.Duration) time.Duration { return below }
		first, second := newProcess(t, kept, nil, limiter.Config{}), newProcess(t, kept, nil, limiter.Config{Random: longest})
		require.True(t, first.hit(event, someUser).Allowed)
		began := time.Now()
		require.False(t, second.hit(event, someUser).Allowed)
		require.Less(t, time.Since(began), 50*time.Millisecond)
	})
}

// Beside buckets: a limit of either engine denies for both.
func TestBesideBuckets(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	kept := storestest.Embedded(clock.Now)
	counters, logs := besideBuckets(t, kept, clock.Now)
	l, err := limiter.New(limiter.Config{Timeout: time.Second}, counters, logs)
	require.NoError(t, err)
	event := testkit.Event(t, "[{per: ip, rate: 3/m}, {per: ip, rate: 5/h, name: log}, {per: user, rate: 4/h}]")
	event.Rules[1].Limits[0].Algorithm = eventlog.Algorithm
	event.Rules[2].Limits[0].Algorithm = eventlog.Algorithm
	for i, want := range []bool{true, true, true, false, false} {
		d, err := l.Hit(t.Context(), limiter.Hit{Event: event, Features: someUser, Cost: 1})
		require.NoError(t, err)
		require.Equal(t, want, d.Allowed, "%d", i)
		require.EqualValues(t, min(i+1, 3), d.Limits[1].Count)
	}
	clock.Advance(time.Minute)
	for i, want := range []bool{true, false} {
		d, err := l.Hit(t.Context(), limiter.Hit{Event: event, Features: someUser, Cost: 1})
		require.NoError(t, err)
		require.Equal(t, want, d.Allowed, "%d", i)
	}
}

// A log that newer rules begin says so for a window, to each process, also to one that knows nothing
// of the rules before, and in a cached denial.
func TestANewLogIsIncomplete(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: [2/h, 9/10h]}]", limiter.Config{})
	unaware := b.other(limiter.Config{})
	aware := newEvent(t, 1, "[{per: ip, rate: [2/h, 9/10h]}]")
	for i := range aware.Rules[0].Limits {
		aware.Rules[0].Limits[i].Since = b.clock.Now().Unix()
	}
	incomplete := func(p *process, event *events.Event) []bool {
		d := p.hit(event, someUser)
		return []bool{d.Limits[0].Incomplete, d.Limits[1].Incomplete}
	}
	b.clock.Advance(time.Minute)
	require.Equal(t, []bool{true, true}, incomplete(b.process, aware))
	for range 4 { // the last ones are denied
		require.Equal(t, []bool{true, true}, incomplete(unaware, b.event))
	}
	b.clock.Advance(58*time.Minute + 59*time.Second)
	require.Equal(t, []bool{true, true}, incomplete(unaware, b.event))
	b.clock.Advance(time.Second)
	require.Equal(t, []bool{false, true}, incomplete(unaware, b.event))
	b.clock.Advance(9 * time.Hour)
	require.Equal(t, []bool{false, false}, incomplete(unaware, b.event))
}

// A new log knows all events of a window that begins within a second.
func TestANewLogIsComplete(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: [3/s, 5/10s]}]", limiter.Config{})
	b.clock.Advance(900 * time.Millisecond)
	for range 2 {
		for _, limit := range b.hit(b.event, someUser).Limits {
			require.False(t, limit.Incomplete)
		}
	}
}

// A log that was rewritten lacks what a longer window of newer rules would count. One of a counter
// without hits lacks nothing.
func TestALongerWindowIsIncomplete(t *testing.T) {
	b := newBench(t, "[{per: ip, rate: 90/m}]", limiter.Config{})
	require.False(t, b.hit(b.event, someUser).Limits[0].Incomplete)
	b.clock.Advance(time.Minute)
	for range 40 {
		b.clock.Advance(time.Second)
		require.False(t, b.hit(b.event, someUser).Limits[0].Incomplete)
	}
	longer := newEvent(t, 2, "[{per: ip, rate: 90/h}]")
	other := b.other(limiter.Config{})
	require.True(t, other.hit(longer, someUser).Limits[0].Incomplete)
	b.clock.Advance(time.Hour)
	require.False(t, other.hit(longer, someUser).Limits[0].Incomplete)
}

// Two processes have the same rules from files of different times. Each decides by its limits alone: a denial is of
// the limit that denies, and neither rewrites the log. The order between different rules stays.
func TestEqualRulesOfDifferentFiles(t *testing.T) {
	const limits = `[{per: ip, rate: 2/m}, {per: ip, rate: 100/h}, {per: ip, rate: 9/m, name: shade, shadow: true},
		{per: ip, rate: 50/d, name: day}, {per: ip, rate: 60/h, burst: 70}]`
	for _, replicas := range []int{1, 2} {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			clock := testkit.NewClock(time.Now())
			var st store.Store = &watched{Store: storestest.Embedded(clock.Now)}
			if replicas > 1 {
				st = openReplicas(t, memcachedtest.StartMany(t, replicas))
			}
			earlier, later := newEvent(t, 1000, limits), newEvent(t, 2000, limits)
			first, second := newProcess(t, st, clock.Now, limiter.Config{}), newProcess(t, st, clock.Now, limiter.Config{})
			requireDenied := func(d events.Decision, by string) {
				t.Helper()
				require.False(t, d.Allowed)
				for _, limit := range d.Limits {
					require.Equal(t, limit.Name != by, limit.Allowed, "%s", limit.Name)
				}
			}
			require.True(t, first.hit(later, someUser).Allowed)
			require.True(t, second.hit(earlier, someUser).Allowed)
			clock.Advance(time.Second) // what was denied before is cached
			requireDenied(second.hit(earlier, someUser), "ip-2-per-1m")
			requireDenied(second.check(earlier, someUser), "ip-2-per-1m")
			requireDenied(first.hit(later, someUser), "ip-2-per-1m")

			stricter := newEvent(t, 1500, "[{per: ip, rate: 1/m}]")
			clock.Advance(2 * time.Minute)
			require.True(t, second.hit(stricter, someUser).Allowed, "judged by both")
			clock.Advance(time.Second)
			requireDenied(second.hit(stricter, someUser), "ip-1-per-1m")
			require.True(t, first.hit(later, someUser).Allowed)
		})
	}
}
