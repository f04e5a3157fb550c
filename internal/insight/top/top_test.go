package top_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
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

func featureOf(pairs ...[2]string) events.Feature {
	counter, _ := events.CounterOf([]byte("login"), 0, pairs...)
	return counter.Feature
}

func keyOf(user string) top.Key {
	return top.Key{Event: "login", Feature: featureOf([2]string{"user", user})}
}

// Hits over 100,000 features by Zipf's law, within half an hour: the ten most frequent are the ten of the
// list, each within its error, and what is not listed had at most the rest.
func TestZipf(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	all := top.New(top.Config{Clock: clock.Now})
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.01, 1, 99_999)
	keys, hits := make([]top.Key, 100_000), map[top.Key]int64{}
	for i := range keys {
		keys[i] = keyOf(fmt.Sprint(i))
	}
	for n := range 300_000 {
		key := keys[zipf.Uint64()]
		hits[key]++
		all.Add(top.Denied, key, "minute")
		if n%12_000 == 0 {
			clock.Advance(time.Minute)
		}
	}
	slices.SortFunc(keys, func(a, b top.Key) int { return int(hits[b] - hits[a]) })
	query := top.Query{Outcome: top.Denied, N: 10, Window: time.Hour}
	ten := all.List(query)
	var found []top.Key
	for _, entry := range ten.Entries {
		found = append(found, entry.Key)
	}
	assert.ElementsMatch(t, keys[:10], found)
	query.N = 1000
	for _, list := range []top.List{ten, all.List(query)} {
		listed := map[top.Key]bool{}
		for _, entry := range list.Entries {
			require.LessOrEqual(t, hits[entry.Key], entry.Count)
			require.GreaterOrEqual(t, hits[entry.Key], entry.Count-entry.Error)
			require.Len(t, entry.Limits, 1)
			require.LessOrEqual(t, entry.Limits[0].Count, hits[entry.Key])
			require.GreaterOrEqual(t, entry.Limits[0].Count, entry.Count-entry.Error)
			listed[entry.Key] = true
		}
		for _, key := range keys {
			if !listed[key] {
				require.LessOrEqual(t, hits[key], list.Rest)
			}
		}
	}
}

// New features all the time drive no frequent one out.
func TestNewFeaturesAllTheTime(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	all := top.New(top.Config{Size: 64, Clock: clock.Now})
	for n := range 100_000 {
		all.Add(top.Admitted, keyOf(fmt.Sprint("new", n)))
		if n%10 == 0 {
			all.Add(top.Admitted, keyOf("loud"))
		}
		if n%5000 == 0 {
			clock.Advance(time.Minute)
		}
	}
	list := all.List(top.Query{N: 3, Window: time.Hour})
	require.Equal(t, keyOf("loud"), list.Entries[0].Key)
	assert.GreaterOrEqual(t, list.Entries[0].Count, int64(10_000))
	assert.LessOrEqual(t, list.Entries[0].Count-list.Entries[0].Error, int64(10_000))
	assert.Positive(t, list.Rest)
}

// Memory has a bound, however many features there are, and however long they are.
func TestMemory(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	all := top.New(top.Config{Clock: clock.Now})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for minute := range 70 {
		for n := range 1500 {
			all.Add(top.Denied, keyOf(fmt.Sprint(minute, n, strings.Repeat("x", 1000))), "minute", "hour")
			all.Add(top.Admitted, keyOf(fmt.Sprint(minute, n, strings.Repeat("x", 1000))))
		}
		clock.Advance(time.Minute)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Logf("%d KB", (after.HeapAlloc-before.HeapAlloc)>>10)
	assert.Less(t, after.HeapAlloc-before.HeapAlloc, uint64(64<<20))
	runtime.KeepAlive(all)
}

// The window has the current minute and those before, and what is older is forgotten.
func TestTheWindowSlides(t *testing.T) {
	clock := testkit.NewClock(time.Unix(1_800_000_000, 0))
	all := top.New(top.Config{Clock: clock.Now})
	count := func(window time.Duration) int64 {
		list := all.List(top.Query{N: 1, Window: window})
		if len(list.Entries) == 0 {
			return 0
		}
		return list.Entries[0].Count
	}
	for range 60 {
		all.Add(top.Admitted, keyOf("bob"))
		clock.Advance(time.Minute)
	}
	for window, want := range map[time.Duration]int64{0: 0, time.Minute: 0, 2 * time.Minute: 1, 10 * time.Minute: 9, time.Hour: 59, 24 * time.Hour: 59} {
		assert.Equal(t, want, count(window), window)
	}
	clock.Advance(58 * time.Minute)
	assert.Equal(t, int64(1), count(time.Hour))
	clock.Advance(time.Minute)
	assert.Zero(t, count(time.Hour))
}

// What is asked for: an event, an outcome, so many.
func TestQueries(t *testing.T) {
	all := top.New(top.Config{})
	for user, n := range map[string]int{"a": 3, "b": 2, "c": 1} {
		for range n {
			all.Add(top.Denied, keyOf(user), "minute")
			all.Add(top.Denied, top.Key{Event: "signup", Feature: keyOf(user).Feature}, "hour", "day")
		}
	}
	list := all.List(top.Query{Outcome: top.Denied, Event: "signup", N: 2, Window: time.Minute})
	require.Len(t, list.Entries, 2)
	assert.Equal(t, top.Entry{
		Key: top.Key{Event: "signup", Feature: keyOf("a").Feature}, Count: 3, Limits: []top.LimitCount{{"day", 3}, {"hour", 3}},
	}, list.Entries[0])
	assert.Equal(t, int64(1), list.Rest)
	assert.Len(t, all.List(top.Query{Outcome: top.Denied, N: 100, Window: time.Minute}).Entries, 6)
	assert.Zero(t, all.List(top.Query{Outcome: top.Denied, Event: "signup", N: 100, Window: time.Minute}).Rest)
	assert.Empty(t, all.List(top.Query{Outcome: top.Admitted, N: 100, Window: time.Minute}).Entries)
	assert.Empty(t, all.List(top.Query{Outcome: top.Denied, Window: time.Minute}).Entries)
}

// A hit counts once for each of its features: admitted for all that have limits, denied for those of which a limit
// denies it.
func TestDecisionsThatCount(t *testing.T) {
	user, ip := featureOf([2]string{"user", "bob"}), featureOf([2]string{"ip", "192.0.2.1"})
	state := func(feature events.Feature, name string, allowed, shadow bool) events.LimitState {
		return events.LimitState{Feature: feature, Name: name, Allowed: allowed, Shadow: shadow}
	}
	all := top.New(top.Config{})
	hit := limiter.Hit{Event: &events.Event{Name: "login"}}
	denied := events.Decision{Limits: []events.LimitState{
		state(events.Feature{}, "all", false, false), state(user, "minute", false, false), state(ip, "ip", true, false),
		state(user, "hour", false, false), state(user, "day", true, false), state(ip, "shadow", false, true),
	}}
	admitted := events.Decision{Allowed: true, Limits: []events.LimitState{
		state(events.Feature{}, "all", true, false), state(user, "minute", true, false), state(user, "hour", true, false), state(ip, "shadow", false, true),
	}}
	all.OnDecision(t.Context(), hit, &denied, limiter.CallHit)
	all.OnDecision(t.Context(), hit, &admitted, limiter.CallHit)
	all.OnDecision(t.Context(), hit, &denied, limiter.CallCheck)
	all.OnDecision(t.Context(), hit, &admitted, limiter.CallCheck)
	denied.Unavailable = true
	all.OnDecision(t.Context(), hit, &denied, limiter.CallHit)
	query := top.Query{Outcome: top.Denied, N: 10, Window: time.Hour}
	assert.Equal(t, []top.Entry{
		{Key: top.Key{Event: "login", Feature: user}, Count: 1, Limits: []top.LimitCount{{"hour", 1}, {"minute", 1}}},
	}, all.List(query).Entries)
	query.Outcome = top.Admitted
	assert.Equal(t, []top.Entry{
		{Key: top.Key{Event: "login", Feature: ip}, Count: 1}, {Key: top.Key{Event: "login", Feature: user}, Count: 1},
	}, all.List(query).Entries)
}

// Hits come and lists are read at once, and none is lost.
func TestMany(t *testing.T) {
	all := top.New(top.Config{Size: 4096})
	began := time.Now()
	var running sync.WaitGroup
	for i := range 8 {
		running.Go(func() {
			for n := range 2000 {
				all.Add(top.Admitted, keyOf(fmt.Sprint(n%100)))
				if n%500 == i {
					all.List(top.Query{N: 10, Window: time.Hour})
				}
			}
		})
	}
	running.Wait()
	var sum int64
	for _, entry := range all.List(top.Query{N: 1000, Window: time.Hour}).Entries {
		sum += entry.Count
	}
	assert.Equal(t, int64(16_000), sum, "within %s", time.Since(began))
}

func BenchmarkAdd(b *testing.B) {
	keys := make([]top.Key, 100_000)
	for i := range keys {
		keys[i] = keyOf(fmt.Sprint(i))
	}
	for name, features := range map[string]int{"known": 100, "new": len(keys)} {
		b.Run(name, func(b *testing.B) {
			all := top.New(top.Config{})
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				for n := rand.IntN(features); p.Next(); n++ {
					all.Add(top.Denied, keys[n%features], "minute")
				}
			})
		})
	}
}
