package counting_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/oracle"
)

// Two processes add at random moments of more than a day, late, ahead and out of order, while the
// clock goes on. Random windows as of random moments, and histories of every level, are then exactly
// what an oracle says that keeps every event.
func TestCountsEqualAnOracle(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	onEveryEngine(t, clock.Now, func(t *testing.T, algorithm string, open func() store.Store) {
		equalAnOracle(t, clock, algorithm, open, func(int, []process, []events.Counter, *oracle.Log) {})
	})
}

// equalAnOracle holds counts and histories to an oracle; before is called before each round.
func equalAnOracle(t *testing.T, clock *testkit.Clock, algorithm string, open func() store.Store, before func(round int, processes []process, counters []events.Counter, log *oracle.Log)) {
	const processes = 2
	var process [processes]process
	for i := range process {
		process[i] = newProcess(t, open(), clock.Now, hierarchy.DefaultGrace)
	}
	var counters []events.Counter
	for _, limits := range []string{"[{per: ip, rate: 9/d}]", "[{per: ip, rate: [9/s, 9/h]}]", "[{per: ip, rate: [9/7s, 9/90m]}]", "[{per: ip, rate: 9/50s}]"} {
		event := newEvent(t, limits, algorithm)
		event.Name = "e" + events.FormatDuration(event.Remembered())
		counters = append(counters, counterOf(t, event, "ip", "192.0.2.1"), counterOf(t, event, "ip", "192.0.2.2"))
	}
	log := oracle.NewLog()
	rng := rand.New(rand.NewPCG(5, 6))
	var found, fine int
	rounds := testkit.Times(6)
	for round := range rounds {
		before(round, process[:], counters, log)
		clock.Advance(time.Duration(rng.Int64N(int64(testkit.Pick(rng, 5*time.Second, time.Minute, 4*time.Hour)))).Truncate(time.Millisecond))
		var running sync.WaitGroup
		for i, p := range process {
			own := rand.New(rand.NewPCG(rng.Uint64(), uint64(i)))
			running.Go(func() {
				for range 40 {
					addAtRandom(t, own, clock.Now(), p, counters[own.IntN(len(counters))], log)
				}
			})
		}
		running.Wait()
		for range 60 {
			counter := counters[rng.IntN(len(counters))]
			p := process[rng.IntN(processes)]
			count, inMilliseconds := countAtRandom(t, rng, clock.Now(), p, counter, log, algorithm)
			if count > 0 {
				found++
			}
			if inMilliseconds {
				fine++
			}
			historyAtRandom(t, rng, clock.Now(), p, counter, log, algorithm)
		}
	}
	require.Greater(t, found, 5*rounds, "windows that hold nothing prove nothing")
	require.Equal(t, algorithm == eventlog.Algorithm, fine > 0)
}

// addAtRandom adds once, now, late, or a little ahead of the clock.
func addAtRandom(t *testing.T, rng *rand.Rand, now time.Time, p process, counter events.Counter, log *oracle.Log) {
	remembered := counter.Remembered()
	at := now.Add(-time.Duration(rng.Int64N(int64(remembered))))
	switch rng.IntN(5) {
	case 0:
		at = now
	case 1:
		at = now.Add(hierarchy.DefaultGrace - time.Duration(rng.Int64N(int64(time.Minute)))%remembered)
	case 2:
		at = at.Truncate(time.Second).Add(time.Second)
	}
	by, given := 1+rng.Int64N(20), at
	if at.Equal(now) {
		given = time.Time{}
	}
	stamped, err := p.Increment(t.Context(), by, given, counter)
	if !assert.NoError(t, err) {
		return
	}
	assert.Equal(t, at.Unix(), stamped.Unix())
	log.Add(counter.ID(), at.UnixMilli(), by)
}

// countAtRandom counts a window, and holds it to the oracle. It reports whether the window was one of
// milliseconds.
func countAtRandom(t *testing.T, rng *rand.Rand, now time.Time, p process, counter events.Counter, log *oracle.Log, algorithm string) (sum int64, inMilliseconds bool) {
	t.Helper()
	seconds := int64(counter.Remembered() / time.Second)
	back := rng.Int64N(seconds)
	length := time.Duration(1+rng.Int64N(min(seconds-back, testkit.Pick(rng, 10, 3600, seconds)))) * time.Second
	at := now.Add(-time.Duration(back) * time.Second)
	switch rng.IntN(3) {
	case 0:
		at = at.Truncate(time.Second)
	case 1:
		at = time.Time{}
	}
	count, err := p.Count(t.Context(), counter, length, at)
	require.NoError(t, err)
	whole := count.From.Nanosecond() == 0 && count.To.Nanosecond() == 0
	forgotten := whole && length < time.Minute && (at.IsZero() || at.Nanosecond() != 0)
	if algorithm == eventlog.Algorithm && forgotten {
		require.False(t, count.Exact, "a log that has forgotten milliseconds")
	} else {
		require.True(t, count.Exact)
	}
	require.Equal(t, algorithm != eventlog.Algorithm, count.Buckets != [engine.Levels]int{})
	end := at
	if at.IsZero() {
		end = now
	}
	if whole {
		require.Equal(t, end.Unix(), count.To.Unix())
		require.Equal(t, end.Unix()-int64(length/time.Second)+1, count.From.Unix())
		require.Equal(t, log.Sum(counter.ID(), count.From.UnixMilli(), count.To.UnixMilli()+999), count.Count, "%s as of %s", length, at)
		return count.Count, false
	}
	require.Equal(t, eventlog.Algorithm, algorithm)
	require.Less(t, length, time.Minute)
	require.True(t, at.IsZero() || at.Nanosecond() != 0, "a whole second is the last of its window")
	require.Equal(t, end.UnixMilli(), count.To.UnixMilli())
	require.Equal(t, end.Add(-length).UnixMilli()+1, count.From.UnixMilli())
	require.Equal(t, log.Sum(counter.ID(), count.From.UnixMilli(), count.To.UnixMilli()), count.Count, "%s as of %s", length, at)
	return count.Count, true
}

func historyAtRandom(t *testing.T, rng *rand.Rand, now time.Time, p process, counter events.Counter, log *oracle.Log, algorithm string) {
	t.Helper()
	level := testkit.Pick(rng, engine.Second, engine.Minute, engine.Hour, engine.Day)
	from := now.Add(-time.Duration(rng.Int64N(int64(counter.Remembered()))))
	to := from.Add(min(time.Duration(rng.Int64N(int64(now.Add(hierarchy.DefaultGrace).Sub(from)))), 2*time.Hour))
	if rng.IntN(3) == 0 && level > engine.Second {
		from, to = time.Time{}, time.Time{}
	}
	history, err := p.History(t.Context(), counter, level, from, to)
	if algorithm != eventlog.Algorithm && level > hierarchy.RankLevel(counter.Remembered()) {
		require.ErrorIs(t, err, engine.ErrOutOfRange)
		return
	}
	require.NoError(t, err)
	require.True(t, history.Exact)
	if !to.IsZero() {
		require.LessOrEqual(t, history.Intervals[0].First, from.Unix())
		require.GreaterOrEqual(t, history.Intervals[0].Last, from.Unix())
	} else {
		to = now
	}
	last := history.Intervals[len(history.Intervals)-1]
	require.LessOrEqual(t, last.First, to.Unix())
	require.GreaterOrEqual(t, last.Last, to.Unix())
	// What has left the retention may be gone.
	forgotten := now.Add(-counter.Remembered()).Unix()
	for i, interval := range history.Intervals {
		require.Equal(t, level.Seconds(), interval.Last-interval.First+1)
		require.True(t, i == 0 || interval.First == history.Intervals[i-1].Last+1)
		if interval.First > forgotten {
			require.Equal(t, log.Sum(counter.ID(), interval.First*1000, interval.Last*1000+999), interval.Count, "%s from %d", level, interval.First)
		}
	}
}
