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

func TestCoversWithOtherLevels(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		finest := Level(rng.IntN(Levels))
		coarsest := finest + Level(rng.IntN(Levels-int(finest)))
		first := rng.Int64N(4e9) - 1e9 // before 1970 too
		w := Window{first, first + rng.Int64N(3*86400)}
		cover := CoverOf(w, finest, coarsest)
		requireTiles(t, cover, w.widen(finest))
		for _, run := range cover {
			require.GreaterOrEqual(t, run.Level, finest)
			require.LessOrEqual(t, run.Level, coarsest)
		}
		buckets := 0
		for range cover.Buckets() {
			buckets++
		}
		require.Equal(t, cover.Len(), buckets)
		require.Equal(t, fewest(w.widen(finest), finest, coarsest), cover.Len(), "the cover of %v by %s to %s", w, finest, coarsest)
	}
}

// fewest counts the tiles of a window the slow way: the window is cut at both
// ends until it is whole buckets of the next level.
func fewest(w Window, l, coarsest Level) int {
	seconds := l.Seconds()
	if l == coarsest {
		return int((w.Last + 1 - w.First) / seconds)
	}
	inner := Window{(l + 1).Of(w.First+(l+1).Seconds()-1) * (l + 1).Seconds(), (l+1).Of(w.Last+1)*(l+1).Seconds() - 1}
	if inner.First > inner.Last {
		return int((w.Last + 1 - w.First) / seconds)
	}
	return int((inner.First-w.First)/seconds) + fewest(inner, l+1, coarsest) + int((w.Last-inner.Last)/seconds)
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

// A bucket may be asked for as long as any second of it lies in a window that
// can be counted. Windows begin as far back as the retention, and the grace for
// slow clocks more; edges are rounded widen to the precision.
func TestNoBucketExpiresWhileACoverNeedsIt(t *testing.T) {
	const grace = 2 * time.Second
	rng := rand.New(rand.NewPCG(3, 4))
	for range testkit.Times(3000) {
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

func TestADayTakesAtMost142Buckets(t *testing.T) {
	most := 0
	for first := int64(20_454 * 86400); first < 20_455*86400; first += 7 {
		most = max(most, CoverOf(Window{first, first + 86399}, Second, Day).Len())
	}
	assert.Equal(t, 142, most)
}

// A bucket takes memory until it expires, unless fewer events come.
func TestBytesOfABucket(t *testing.T) {
	day := counterKept(24*time.Hour, events.Second)
	assert.InDelta(t, (86400+1440+24+2)*96, SpreadBytes(day, 1<<40, 2*time.Second), 20*96)
	assert.Equal(t, int64(10*96), SpreadBytes(day, 1, 2*time.Second))
	assert.Less(t, SpreadBytes(counterKept(24*time.Hour, events.Minute), 1<<40, 2*time.Second), int64((1440+50)*96))
}

func FuzzCover(f *testing.F) {
	f.Add(int64(1_773_444_633), uint32(86400), uint8(0), uint8(3))
	f.Fuzz(func(t *testing.T, last int64, length uint32, a, b uint8) {
		last %= 1 << 37
		finest, coarsest := min(Level(a%Levels), Level(b%Levels)), max(Level(a%Levels), Level(b%Levels))
		w := Window{last - int64(length%(60*86400)), last}
		requireTiles(t, CoverOf(w, finest, coarsest), w.widen(finest))
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
			for range testkit.Times(300) {
				now := 20_454*86400 + rng.Int64N(366*86400)
				first, last := w.Around(now)
				s := newView(w, now, now+2, Second)
				most = max(most, s.buckets().Len())
				next := first
				for bucket := range s.buckets().Buckets() {
					require.Equal(t, next, bucket.First(), "%s, %d", zone, length)
					next = bucket.Last() + 1
				}
				require.Greater(t, next, min(last, now+2))
				require.LessOrEqual(t, next, last+1)
				head := s.rank
				require.True(t, head.First() <= now && now <= head.Last())
				require.Contains(t, slices.Collect(s.buckets().Buckets()), head)

				later := now + rng.Int64N(last-now+1)
				other := newView(w, later, later+2, Second)
				require.Contains(t, slices.Collect(other.buckets().Buckets()), head, "a later hit finds it in the same bucket")
			}
			require.Less(t, most, 180, "%s, %d", zone, length)
		}
	}
}
