package journal_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/journal"
)

const young = 4000

// filled is a log that hits are added to, and the largest that it was after a rewrite.
type filled struct {
	tb      testing.TB
	limits  []journal.Limit
	retain  int64
	value   []byte
	log     journal.Log
	last    journal.ID
	largest int
}

// hit appends a hit at a time, and rewrites the log. It reports whether the log admits the hit.
func (f *filled) hit(time int64) bool {
	f.last++
	entry := journal.Entry{Kind: journal.Hit, ID: f.last, Time: time, Cost: 1, Count: 1}
	value, err := journal.AppendEntry(f.value, entry)
	require.NoError(f.tb, err)
	require.NoError(f.tb, f.log.Read(value, journal.Question{Keys: []journal.ID{f.last}, Limits: f.limits}))
	if f.log.Verdict(0).Admitted == 0 {
		return false
	}
	f.value, err = f.log.AppendRewrite(nil, journal.Rewrite{Now: time, Young: young, Retain: f.retain})
	require.NoError(f.tb, err)
	f.largest = max(f.largest, len(f.value))
	return true
}

func fill(tb testing.TB, limits []journal.Limit, retain int64) *filled {
	value, err := journal.AppendNew(nil, journal.Head{Limits: limits, Revision: 1 << 63, TTL: 3_000_000}, now)
	require.NoError(tb, err)
	return &filled{tb: tb, limits: limits, retain: retain, value: value}
}

// However hits come, a log that admits no more than its limits is no larger than its size.
func TestNoLogIsLargerThanItsSize(t *testing.T) {
	for seed := range testkit.Seeds(60) {
		random := rand.New(rand.NewPCG(seed, 0))
		var limits []journal.Limit
		for _, window := range []int64{1000, 10_000, 60_000, 3600_000, 86_400_000} {
			if random.IntN(2) == 0 {
				limits = append(limits, journal.Limit{Window: window, Ceiling: 1 + random.Int64N(80)})
			}
		}
		if len(limits) == 0 {
			continue
		}
		retain := []int64{0, 0, 7200_000, 172_800_000}[random.IntN(4)]
		size := journal.Size(limits, retain, young)
		f, time := fill(t, limits, retain), int64(now)
		for range 400 {
			pause := []int64{1, 50, 1000, 60_000, 3600_000}[random.IntN(5)]
			for range 1 + random.IntN(20) {
				if time += random.Int64N(pause); !f.hit(time) {
					time += 1 + random.Int64N(limits[random.IntN(len(limits))].Window)
				}
			}
		}
		require.LessOrEqual(t, f.largest, size, "seed %d: %+v for %d ms", seed, limits, retain)
	}
}

// The worst case is a burst: the size is not much more than it takes.
func TestASizeIsThatOfABurst(t *testing.T) {
	limits := []journal.Limit{{Window: 86_400_000, Ceiling: 500}}
	f := fill(t, limits, 0)
	for i := range int64(500) {
		require.True(t, f.hit(now+i))
	}
	require.False(t, f.hit(now+500))
	size := journal.Size(limits, 0, young)
	assert.Greater(t, size, f.largest)
	assert.Less(t, float64(size), 1.05*float64(f.largest))
}

func TestWhatFitsALog(t *testing.T) {
	for _, test := range []struct {
		name   string
		limits []journal.Limit
		retain int64
		fits   bool
	}{
		{"a thousand a day", []journal.Limit{{Window: 86_400_000, Ceiling: 1000}}, 0, true},
		{"1,200 a day in a burst", []journal.Limit{{Window: 86_400_000, Ceiling: 1200}}, 0, false},
		{"1,200 a day, of which no more than 60 in a minute", []journal.Limit{{Window: 86_400_000, Ceiling: 1200}, {Window: 60_000, Ceiling: 60}}, 0, true},
		{"500 an hour, kept for a week", []journal.Limit{{Window: 3600_000, Ceiling: 500}}, 7 * 86_400_000, false},
		{"100 a second", []journal.Limit{{Window: 1000, Ceiling: 100}}, 0, true},
		{"1,000 a second", []journal.Limit{{Window: 1000, Ceiling: 1000}}, 0, false},
		{"more than a number holds", []journal.Limit{{Window: 1000, Ceiling: 1 << 61}}, 30 * 86_400_000, false},
		{"nothing", []journal.Limit{{Window: 1000}}, 0, true},
	} {
		size := journal.Size(test.limits, test.retain, young)
		assert.Positive(t, size, test.name)
		assert.Equal(t, test.fits, size <= journal.MaxSize, "%s: %d bytes", test.name, size)
	}
}

// A log of hits at equal distances is what Spread says of it.
func TestSpread(t *testing.T) {
	for _, n := range []int64{1, 10, 100, 500} {
		limits := []journal.Limit{{Window: 3600_000, Ceiling: n}}
		hits, bytes := journal.Spread(limits, 0)
		require.Equal(t, n, hits)
		f := fill(t, limits, 0)
		largest := 0
		for i := range 3 * n {
			f.last++
			value, err := journal.AppendEntry(f.value, journal.Entry{Kind: journal.Hit, ID: f.last, Time: now + i*3600_000/n, Cost: 1, Count: 1})
			require.NoError(t, err)
			f.value, largest = value, max(largest, len(value))
			require.NoError(t, f.log.Read(f.value, journal.Question{}))
			if f.log.Due() {
				f.value, err = f.log.AppendRewrite(nil, journal.Rewrite{Now: now + i*3600_000/n, Young: young})
				require.NoError(t, err)
			}
		}
		assert.LessOrEqual(t, largest, bytes+2*journal.EntrySize, "%d hits", n)
		assert.GreaterOrEqual(t, 2*largest+256, bytes, "%d hits", n)
	}
}
