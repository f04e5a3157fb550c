package hierarchy

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/storestest"
)

var (
	_ limiter.Engine  = (*Counters)(nil)
	_ engine.Counting = (*Counters)(nil)
)

// counted is events of one second on one counter.
type counted struct{ second, cost int64 }

// sumOf returns what a window of hits of the second holds at the precision: all that shares it and came by now.
func sumOf(all []counted, w events.Windows, second int64, finest Level) (sum int64) {
	first, last := w.Around(second)
	for _, e := range all {
		if e.second >= BucketAt(finest, first).First() && e.second <= last {
			sum += e.cost
		}
	}
	return sum
}

// resetOf returns after how many seconds no more than most are in the window.
func resetOf(all []counted, w events.Windows, second, most int64, finest Level) (wait int64) {
	var leave []counted // by the second from which they are not in the window
	for _, e := range all {
		_, last := w.Around(BucketAt(finest, e.second).Last())
		leave = append(leave, counted{last + 1, e.cost})
	}
	slices.SortFunc(leave, func(a, b counted) int { return cmp.Compare(b.second, a.second) })
	var sum int64
	for _, e := range leave {
		if sum += e.cost; sum > most {
			return max(e.second-second, 0)
		}
	}
	return 0
}

// A session counts, searches and explains as one that keeps each event would.
func TestSessionsCountWhatCame(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		clock := testkit.NewClock(time.Unix(20_454*86400+rng.Int64N(3*86400), 0))
		counters := NewCounters(Config{Store: storestest.Embedded(clock.Now), Clock: clock.Now})
		counter := events.Counter{Event: "e", Retention: 24 * time.Hour, Precision: events.Precision(rng.IntN(3))}
		step := int64(counter.Precision.Length() / time.Second)
		var limits []limiter.Limit
		for range 1 + rng.IntN(3) {
			n := []int64{step, 7 * step, 60 * step, 61 * step, 3600, 86400}[rng.IntN(6)]
			limit := events.Limit{Window: time.Duration(min(max(n, step), 86400)) * time.Second, Algorithm: []string{"sliding-window", "fixed-window"}[rng.IntN(2)]}
			limits = append(limits, limiter.Limit{Limit: limit, Ceiling: 1 + rng.Int64N(60)})
		}
		w := world{t: t, rng: rng, counters: counters, counter: counter, limits: limits, session: counters.NewSession(), finest: RankLevel(counter.Precision.Length())}
		for range 60 {
			clock.Advance(time.Duration(rng.Int64N([]int64{1, 3, 90, 4000}[rng.IntN(4)])) * time.Second)
			w.batch(clock.Now())
		}
	}
}

type world struct {
	t        *testing.T
	rng      *rand.Rand
	counters *Counters
	counter  events.Counter
	limits   []limiter.Limit
	session  limiter.Session
	finest   Level
	all      []counted
}

func (w *world) batch(now time.Time) {
	at := limiter.Moment{Time: now, Second: now.Unix(), Latest: now.Unix(), Peek: w.rng.IntN(2) == 0}
	tally := &limiter.Tally{ID: w.counter.ID(), Counter: w.counter, Limits: slices.Clone(w.limits)}
	adds := w.rng.IntN(3) > 0
	for range 1 + w.rng.IntN(3) {
		cost := 1 + w.rng.Int64N(5)
		tally.Adds = append(tally.Adds, limiter.Addition{Cost: cost})
		tally.Demand += cost
	}
	if !adds {
		tally.Adds = nil
		w.session.Check(w.t.Context(), at, []*limiter.Tally{tally})
	} else {
		w.session.Add(w.t.Context(), at, []*limiter.Tally{tally})
	}
	require.NoError(w.t, tally.Err)
	require.Equal(w.t, time.Second, tally.Tick)
	for i := range tally.Limits {
		limit := &tally.Limits[i]
		want := sumOf(w.all, limit.Windows(), at.Second, w.finest)
		if limit.Exact || !adds {
			require.Equal(w.t, want, limit.Count, "%v", limit.Limit)
		}
		require.GreaterOrEqual(w.t, limit.Count, want)
		require.Equal(w.t, want+tally.Demand <= limit.Ceiling, limit.Count+tally.Demand <= limit.Ceiling, "it decides as exact counts do")
	}
	kept := []counted{}
	for i := range tally.Adds {
		if a := &tally.Adds[i]; w.rng.IntN(2) == 0 {
			a.Kept = true
			tally.Taken += a.Cost
			kept = append(kept, counted{at.Second, a.Cost})
		}
	}
	require.NoError(w.t, w.session.Undo(w.t.Context()))
	before := w.all
	w.all = append(w.all, kept...)
	w.search(at, tally, before)
}

// search searches until when limits have room.
func (w *world) search(at limiter.Moment, tally *limiter.Tally, before []counted) {
	for i := range tally.Limits {
		tally.Searches = append(tally.Searches, limiter.Search{Limit: i, Most: w.rng.Int64N(60), Moments: w.rng.IntN(4)})
	}
	require.NoError(w.t, w.session.Search(w.t.Context()))
	for _, s := range tally.Searches {
		windows := tally.Limits[s.Limit].Windows()
		require.Equal(w.t, time.Duration(resetOf(w.all, windows, at.Second, s.Most, w.finest))*time.Second, s.Reset, "%v: at most %d", tally.Limits[s.Limit].Limit, s.Most)
		if s.Moments == 0 {
			continue
		}
		require.True(w.t, s.Explanation.Whole)
		var sum int64
		for _, part := range s.Explanation.Sum {
			sum += part.Count
		}
		require.Equal(w.t, sumOf(before, windows, at.Second, w.finest), sum)
		left := sum
		for _, freed := range s.Explanation.Frees {
			left -= freed.Count
			require.Equal(w.t, freed.At/1000-at.Second, resetOf(before, windows, at.Second, left, w.finest))
		}
	}
}
