package top_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/insight/top"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/testkit"
)

// Denials of limits are exact in each minute, however many features there are, and those older than an hour are gone.
func TestDenialsAreExact(t *testing.T) {
	clock := testkit.NewClock(time.Unix(1_800_000_000, 0))
	all := top.New(top.Config{Size: 16, Clock: clock.Now})
	rng := rand.New(rand.NewPCG(1, 2))
	type minute struct {
		event, limit string
		number       int64
	}
	want := map[minute]int64{}
	const minutes = 150
	for n := range int64(minutes) {
		if n > 0 {
			clock.Advance(time.Minute)
		}
		for range rng.IntN(2000) {
			event, limit := []string{"login", "signup"}[rng.IntN(2)], fmt.Sprint("limit-", rng.IntN(1+rng.IntN(32)))
			all.Add(top.Denied, top.Key{Event: event, Feature: keyOf(fmt.Sprint(rng.Uint32())).Feature}, limit)
			want[minute{event, limit, n}]++
		}
		all.Add(top.Admitted, keyOf("bob"))
	}
	rows, before := all.Denials(clock.Now()), int64(1<<62)
	for _, row := range rows {
		var sum int64
		for i, count := range row.Minutes {
			assert.Equal(t, want[minute{row.Event, row.Limit, minutes - 60 + int64(i)}], count, "%s %s %d", row.Event, row.Limit, i)
			sum += count
		}
		assert.Equal(t, sum, row.Sum)
		assert.LessOrEqual(t, row.Sum, before)
		before = row.Sum
	}
	assert.Len(t, rows, 2*32)
	clock.Advance(59 * time.Minute)
	for _, row := range all.Denials(clock.Now()) {
		assert.Equal(t, row.Sum, row.Minutes[0], "of the minute before last")
	}
	clock.Advance(time.Minute)
	assert.Empty(t, all.Denials(clock.Now()))
}

// Beyond 64 limits denials are in one row, the last, and none is lost. So memory has a bound.
func TestDenialsOfManyLimits(t *testing.T) {
	clock := testkit.NewClock(time.Unix(1_800_000_000, 0))
	all := top.New(top.Config{Size: 16, Clock: clock.Now})
	sum := func(rows []top.Denials) (n int64) {
		for _, row := range rows {
			n += row.Sum
		}
		return n
	}
	// Ten in each minute have counts of their own, and the hour has 100.
	for i := range 100 {
		for range i + 1 {
			all.Add(top.Denied, keyOf("bob"), fmt.Sprint("limit-", i))
		}
		if i%10 == 9 {
			clock.Advance(time.Minute)
		}
	}
	rows := all.Denials(clock.Now())
	require.Len(t, rows, 65)
	assert.Equal(t, "limit-99", rows[0].Limit)
	assert.Equal(t, "limit-36", rows[63].Limit)
	assert.Equal(t, int64(37), rows[63].Sum)
	assert.Empty(t, rows[64].Limit)
	assert.Equal(t, int64(36*37/2), rows[64].Sum, "the lowest 36")
	assert.Equal(t, int64(100*101/2), sum(rows))

	var empty, full runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&empty)
	const hits = 5000 // in each minute
	for range 60 {
		clock.Advance(time.Minute)
		for n := range hits {
			all.Add(top.Denied, keyOf(fmt.Sprint(n)), fmt.Sprint("other-", clock.Now().Unix(), n))
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&full)
	rows = all.Denials(clock.Now())
	assert.Len(t, rows, 65)
	assert.Equal(t, int64(60*hits), sum(rows))
	t.Logf("%d KB", (full.HeapAlloc-empty.HeapAlloc)>>10)
	assert.Less(t, full.HeapAlloc-empty.HeapAlloc, uint64(16<<20))
	runtime.KeepAlive(all)
}

// A denied hit counts once for each limit that denied it, those of the event as a whole too. What is in shadow, checks
// and hits that no limit denied do not count.
func TestDecisionsThatCountForLimits(t *testing.T) {
	user, ip := featureOf([2]string{"user", "bob"}), featureOf([2]string{"ip", "192.0.2.1"})
	state := func(feature events.Feature, name string, allowed, shadow bool) events.LimitState {
		return events.LimitState{Feature: feature, Name: name, Allowed: allowed, Shadow: shadow}
	}
	clock := testkit.NewClock(time.Unix(1_800_000_000, 0))
	all := top.New(top.Config{Clock: clock.Now})
	hit := limiter.Hit{Event: &events.Event{Name: "login"}}
	denied := events.Decision{Limits: []events.LimitState{
		state(events.Feature{}, "all", false, false), state(user, "minute", false, false), state(ip, "minute", false, false),
		state(user, "minute", false, false), state(user, "hour", true, false), state(ip, "shadow", false, true),
	}}
	whole := events.Decision{Limits: []events.LimitState{state(events.Feature{}, "all", false, false), state(user, "hour", true, false)}}
	admitted := events.Decision{Allowed: true, Limits: []events.LimitState{state(ip, "shadow", false, true), state(events.Feature{}, "all", true, false)}}
	for _, d := range []*events.Decision{&denied, &whole, &admitted} {
		all.OnDecision(t.Context(), hit, d, limiter.CallHit)
		all.OnDecision(t.Context(), hit, d, limiter.CallCheck)
	}
	denied.Unavailable = true
	all.OnDecision(t.Context(), hit, &denied, limiter.CallHit)
	rows := all.Denials(clock.Now())
	require.Len(t, rows, 2)
	for i, want := range []top.Denials{{Event: "login", Limit: "all", Sum: 2}, {Event: "login", Limit: "minute", Sum: 1}} {
		want.Minutes[59] = want.Sum
		assert.Equal(t, want, rows[i])
	}
	for _, outcome := range []top.Outcome{top.Admitted, top.Denied} {
		for _, entry := range all.List(top.Query{Outcome: outcome, N: 10, Window: time.Hour}).Entries {
			assert.NotEqual(t, events.Feature{}, entry.Feature, "the event as a whole is no feature")
		}
	}
}

// Hits come and denials are read at once, and none is lost.
func TestDenialsAtOnce(t *testing.T) {
	clock := testkit.NewClock(time.Unix(1_800_000_000, 0))
	all := top.New(top.Config{Clock: clock.Now})
	var running sync.WaitGroup
	for i := range 8 {
		running.Go(func() {
			for n := range 1000 {
				all.Add(top.Denied, keyOf(fmt.Sprint(n)), "minute")
				if n%200 == i {
					all.Denials(clock.Now())
				}
			}
		})
	}
	running.Wait()
	require.Len(t, all.Denials(clock.Now()), 1)
	assert.Equal(t, int64(8000), all.Denials(clock.Now())[0].Sum)
}
