package hierarchy

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/testkit"
)

func TestTheNotesExample(t *testing.T) {
	moment := time.Date(2026, 3, 14, 23, 30, 33, 0, time.UTC)
	cover := CoverOf(WindowAt(moment, 24*time.Hour), Second, Day)

	var lengths []int
	var levels []Level
	for _, run := range cover {
		lengths, levels = append(lengths, run.Len()), append(levels, run.Level)
	}
	assert.Equal(t, []int{26, 29, 23, 30, 34}, lengths)
	assert.Equal(t, []Level{Second, Minute, Hour, Minute, Second}, levels)
	assert.Equal(t, 142, cover.Len())
	assert.Equal(t, [Levels]int{Second: 60, Minute: 59, Hour: 23}, cover.PerLevel())

	yesterday := time.Date(2026, 3, 13, 23, 30, 34, 0, time.UTC)
	assert.Equal(t, yesterday.Unix(), Bucket{cover[0].Level, cover[0].First}.First())
	assert.Equal(t, moment.Unix(), Bucket{Second, cover[4].Last}.Last())
}

// requireTiles fails unless the cover holds every second of the window once and
// no other.
func requireTiles(t *testing.T, cover Cover, w Window) {
	t.Helper()
	next := w.First
	for _, run := range cover {
		require.Equal(t, next, run.First*run.Level.Seconds(), "the run begins where the one before ended: %v of %v", run, w)
		require.Positive(t, run.Len())
		next = (run.Last + 1) * run.Level.Seconds()
	}
	require.Equal(t, w.Last+1, next, "the cover ends with the window %v", w)
}

func TestCoversTileEveryWindow(t *testing.T) {
	midnight := time.Date(2026, 3, 14, 0, 0, 0, 0, time.UTC).Unix()
	lengths := []int64{1, 2, 10, 59, 60, 61, 119, 120, 900, 3599, 3600, 3601, 7200, 43200,
		86399, 86400, 86401, 2 * 86400, 7 * 86400, 29*86400 + 1, 30 * 86400}
	most := map[int64]int{}
	for second := midnight; second < midnight+86400; second++ {
		for _, length := range lengths {
			w := Window{second - length + 1, second}
			cover := CoverOf(w, Second, Day)
			// Comparing by hand keeps two million rounds fast.
			next := w.First
			for _, run := range cover {
				if run.First*run.Level.Seconds() != next || run.Len() < 1 {
					requireTiles(t, cover, w)
				}
				next = (run.Last + 1) * run.Level.Seconds()
			}
			if next != w.Last+1 {
				requireTiles(t, cover, w)
			}
			most[length] = max(most[length], cover.Len())
		}
	}
	assert.Equal(t, 142, most[86400], "a day is never more than 142 buckets, and somewhere as many")
	assert.Equal(t, 1, most[1])
	assert.Equal(t, 60, most[60])
	assert.Equal(t, 60+59, most[3600])
	assert.Equal(t, 60+59+23+29, most[30*86400])
}

func TestCoversWithOtherLevels(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		finest := Level(rng.IntN(Levels))
		coarsest := finest + Level(rng.IntN(Levels-int(finest)))
		first := rng.Int64N(4e9) - 1e9 // before 1970 too
		w := Window{first, first + rng.Int64N(3*86400)}
		cover := CoverOf(w, finest, coarsest)
		requireTiles(t, cover, w.outward(finest))
		for _, run := range cover {
			require.GreaterOrEqual(t, run.Level, finest)
			require.LessOrEqual(t, run.Level, coarsest)
		}
		buckets := 0
		for range cover.Buckets() {
			buckets++
		}
		require.Equal(t, cover.Len(), buckets)
		require.Equal(t, fewest(w.outward(finest), finest, coarsest), cover.Len(), "the cover of %v by %s to %s", w, finest, coarsest)
	}
}

// fewest counts the tiles of a window the slow way: the window is cut at both
// ends until it is whole buckets of the next level.
func fewest(w Window, l, coarsest Level) int {
	seconds := l.Seconds()
	if l == coarsest {
		return int((w.Last + 1 - w.First) / seconds)
	}
	inner := Window{-floorDiv(-w.First, (l+1).Seconds()) * (l + 1).Seconds(), floorDiv(w.Last+1, (l+1).Seconds())*(l+1).Seconds() - 1}
	if inner.First > inner.Last {
		return int((w.Last + 1 - w.First) / seconds)
	}
	return int((inner.First-w.First)/seconds) + fewest(inner, l+1, coarsest) + int((w.Last-inner.Last)/seconds)
}

func TestBuckets(t *testing.T) {
	second := time.Date(2026, 3, 14, 23, 30, 33, 0, time.UTC).Unix()
	for l := Second; l <= Day; l++ {
		b := BucketAt(l, second)
		assert.LessOrEqual(t, b.First(), second)
		assert.GreaterOrEqual(t, b.Last(), second)
		assert.Equal(t, l.Seconds(), b.Last()-b.First()+1)
		assert.Zero(t, b.First()%l.Seconds())
		assert.Less(t, b.ID(), uint64(1)<<40)
	}
	assert.Equal(t, Bucket{Minute, -1}, BucketAt(Minute, -1), "before 1970 buckets do not meet at zero")
}

func TestBucketIDsDiffer(t *testing.T) {
	seen := map[uint64]Bucket{}
	for l := Second; l <= Day; l++ {
		for n := range int64(1000) {
			for _, b := range []Bucket{{l, n}, {l, 1_790_000_000 + n}} {
				other, twice := seen[b.ID()]
				require.False(t, twice, "%v and %v", b, other)
				seen[b.ID()] = b
			}
		}
	}
}

func TestRankLevels(t *testing.T) {
	for window, want := range map[time.Duration]Level{
		time.Second: Second, 59 * time.Second: Second, time.Minute: Minute, 15 * time.Minute: Minute,
		time.Hour: Hour, 23 * time.Hour: Hour, 24 * time.Hour: Day, 30 * 24 * time.Hour: Day,
	} {
		assert.Equal(t, want, RankLevel(window), "%s", window)
	}
}

// A bucket may be asked for as long as any second of it lies in a window that
// can be counted. Windows begin as far back as the retention, and the grace for
// slow clocks more; edges are rounded outward to the precision.
func TestNoBucketExpiresWhileACoverNeedsIt(t *testing.T) {
	const grace = 2 * time.Second
	rng := rand.New(rand.NewPCG(3, 4))
	for range testkit.Times(50_000) {
		retention := time.Duration(1+rng.Int64N(30*86400)) * time.Second
		coarsest := RankLevel(retention)
		finest := Level(rng.IntN(int(coarsest) + 1))
		now := int64(1_790_000_000) + rng.Int64N(10*86400)
		oldest := now - engine.CeilSeconds(retention) - engine.CeilSeconds(grace)
		w := Window{oldest + rng.Int64N(engine.CeilSeconds(retention)), 0}
		w.Last = w.First + rng.Int64N(now-w.First+1)
		for b := range CoverOf(w, finest, coarsest).Buckets() {
			require.Greater(t, b.Expires(retention, grace), now, "%v of %v at %d", b, w, now)
		}
	}
}

func TestExpiresIsWhatTheDesignSays(t *testing.T) {
	second := time.Date(2026, 3, 14, 23, 30, 33, 0, time.UTC).Unix()
	for l := Second; l <= Day; l++ {
		b := BucketAt(l, second)
		assert.Equal(t, b.Last()+1+86400+l.Seconds()+2+1, b.Expires(24*time.Hour, 2*time.Second))
	}
}

func TestCosts(t *testing.T) {
	cost := FootprintOf(counterKept(24*time.Hour, 0), 2*time.Second)
	assert.Equal(t, Second, cost.Finest)
	assert.Equal(t, Day, cost.Coarsest)
	assert.Equal(t, 142, cost.Reads)
	// A day of seconds, and on top of it minutes, hours and days.
	assert.InDelta(t, (86400+1440+24+2)*96, cost.Bytes, 20*96)

	coarse := FootprintOf(counterKept(24*time.Hour, 1), 2*time.Second)
	assert.Equal(t, Minute, coarse.Finest)
	assert.Less(t, coarse.Bytes, cost.Bytes/50)
	assert.Less(t, coarse.Reads, cost.Reads)

	assert.Equal(t, 25, FootprintOf(counterKept(24*time.Hour, 2), 2*time.Second).Reads, "an hour begun at each end")

	short := FootprintOf(counterKept(10*time.Second, 0), 2*time.Second)
	assert.Equal(t, Second, short.Coarsest)
	assert.Equal(t, 10, short.Reads)
}

func FuzzCover(f *testing.F) {
	f.Add(int64(1_773_444_633), uint32(86400), uint8(0), uint8(3))
	f.Fuzz(func(t *testing.T, last int64, length uint32, a, b uint8) {
		last %= 1 << 37
		finest, coarsest := min(Level(a%Levels), Level(b%Levels)), max(Level(a%Levels), Level(b%Levels))
		w := Window{last - int64(length%(60*86400)), last}
		requireTiles(t, CoverOf(w, finest, coarsest), w.outward(finest))
	})
}

func counterKept(retention time.Duration, precision events.Precision) events.Counter {
	return events.Counter{Event: "e", Retention: retention, Precision: precision}
}

// Windows that follow one another are tiled exactly as far as the look ahead, by few buckets, and each
// second counts in one bucket of them, from whatever moment of the window it is looked at.
func TestTilesOfFixedWindows(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, zone := range []string{"", "UTC", "Europe/Berlin", "Asia/Kathmandu", "Australia/Lord_Howe"} {
		for _, length := range []int64{90, 3599, 3600, 86400, 7 * 86400, 30 * 86400} {
			limit := events.Limit{Window: time.Duration(length) * time.Second, Algorithm: "fixed-window"}
			if zone != "" && length >= 3600 {
				loaded, err := time.LoadLocation(zone)
				require.NoError(t, err)
				limit.Calendar = loaded
			}
			w, most := limit.Windows(), 0
			for range testkit.Times(2000) {
				now := 20_454*86400 + rng.Int64N(366*86400)
				first, last := w.Around(now)
				s := spanOf(w, now, Second, 2)
				most = max(most, s.row().Len())
				next := first
				for bucket := range s.row().Buckets() {
					require.Equal(t, next, bucket.First(), "%s, %d", zone, length)
					next = bucket.Last() + 1
				}
				require.Greater(t, next, min(last, now+2))
				require.LessOrEqual(t, next, last+1)
				head := Bucket{s.rank, s.head}
				require.True(t, head.First() <= now && now <= head.Last())
				require.Contains(t, slices.Collect(s.row().Buckets()), head)

				other := spanOf(w, now+rng.Int64N(last-now+1), Second, 2)
				require.Contains(t, slices.Collect(other.row().Buckets()), head, "a later hit finds it in the same bucket")
			}
			require.Less(t, most, 180, "%s, %d", zone, length)
		}
	}
}
