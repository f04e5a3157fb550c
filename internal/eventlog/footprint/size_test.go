package footprint_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/eventlog/footprint"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
)

const (
	youth = 4000
	now   = 1_800_000_000_000
)

// filled is a log that hits are added to, and the largest that it was after a rewrite.
type filled struct {
	tb      testing.TB
	limits  []journal.Limit
	retain  int64
	waits   int64 // for which hits wait for their turns
	value   []byte
	log     journal.Log
	last    journal.ID
	largest int
}

// hit appends a hit at a time, and rewrites the log. It reports whether the log admits the hit.
func (f *filled) hit(time int64) bool {
	f.last++
	entry := journal.Entry{Kind: journal.Hit, ID: f.last * 999, Time: time, Cost: 1, Count: 1}
	value, err := journal.AppendEntry(f.value, entry)
	require.NoError(f.tb, err)
	require.NoError(f.tb, f.log.Read(value, journal.Question{Keys: []journal.ID{f.last * 999}, Limits: f.limits}))
	if f.log.Verdict(0).Admitted == 0 {
		return false
	}
	f.value, err = f.log.AppendRewrite(nil, journal.Rewrite{Now: time, Until: time + 4_000_000, Young: journal.Youth(youth, f.waits, len(value)), Retain: f.retain})
	require.NoError(f.tb, err)
	f.largest = max(f.largest, len(f.value))
	return true
}

// append appends a hit at a time.
func (f *filled) append(time int64) {
	f.last++
	value, err := journal.AppendEntry(f.value, journal.Entry{Kind: journal.Hit, ID: f.last * 999, Time: time, Cost: 1, Count: 1})
	require.NoError(f.tb, err)
	f.value = value
}

// rewriteIfDue rewrites the log if that is due.
func (f *filled) rewriteIfDue(time int64) bool {
	require.NoError(f.tb, f.log.Read(f.value, journal.Question{}))
	if !f.log.Due() {
		return false
	}
	var err error
	f.value, err = f.log.AppendRewrite(nil, journal.Rewrite{Now: time, Until: time + 4_000_000, Young: journal.Youth(youth, f.waits, len(f.value)), Retain: f.retain})
	require.NoError(f.tb, err)
	return true
}

func fill(tb testing.TB, limits []journal.Limit, retain int64) *filled {
	value, err := journal.AppendNew(nil, journal.Head{Limits: limits, Revision: 1 << 63, TTL: 4000, Until: now + 4_000_000, Floor: now - youth, Since: now - 3_600_000}, now)
	require.NoError(tb, err)
	return &filled{tb: tb, limits: limits, retain: retain, value: value}
}

// However hits come, a log that admits no more than its limits is no larger than its size.
func TestNoLogIsLargerThanItsSize(t *testing.T) {
	for seed := range testkit.Seeds(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		var limits []journal.Limit
		for _, window := range []int64{1000, 10_000, 60_000, 3600_000, 86_400_000} {
			if random.IntN(2) == 0 {
				limits = append(limits, journal.Limit{Window: window, Ceiling: 1 + random.Int64N(80)})
			}
		}
		waits := int64(0)
		if random.IntN(3) == 0 { // a leaky bucket
			window := []int64{1000, 60_000, 3600_000}[random.IntN(3)]
			bucket := journal.Limit{Window: window, Rate: 1 + random.Int64N(40), Ceiling: 1 + random.Int64N(600)}
			limits, waits = append(limits, bucket), bucket.Wait(0, bucket.Ceiling-1)
		}
		if len(limits) == 0 {
			continue
		}
		retain := []int64{0, 0, 7200_000, 172_800_000}[random.IntN(4)]
		size := footprint.Size(limits, retain, youth, waits)
		f, time := fill(t, limits, retain), int64(now)
		f.waits = waits
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

// Nor is one of a leaky bucket that many processes fill and drain.
func TestNoLogOfHitsThatWaitIsLargerThanItsSize(t *testing.T) {
	for _, limit := range []journal.Limit{{Window: 60_000, Rate: 6, Ceiling: 31}, {Window: 3600_000, Rate: 60, Ceiling: 201}, {Window: 60_000, Rate: 60, Ceiling: 600}} {
		limits := []journal.Limit{limit}
		f, time, random := fill(t, limits, 0), int64(now), rand.New(rand.NewPCG(1, 1))
		f.waits = limit.Wait(0, limit.Ceiling-1)
		for range 3 * limit.Ceiling {
			f.last = journal.ID(random.Uint64N(1 << 46))
			if time++; !f.hit(time) {
				time += limit.Window / limit.Rate
			}
		}
		size := footprint.Size(limits, 0, youth, f.waits)
		assert.LessOrEqual(t, f.largest, size, "%+v", limit)
		assert.LessOrEqual(t, size, max(journal.MaxSize/2, footprint.Size(limits, 0, youth, 0)), "over half its bound it does not know them: %+v", limit)
		t.Logf("%+v: %d, of %d at the most", limit, f.largest, size)
	}
}

// The worst case is a burst: the size is not much more than it takes until it is rewritten.
func TestASizeIsThatOfABurst(t *testing.T) {
	limits := []journal.Limit{{Window: 86_400_000, Ceiling: 500}}
	f := fill(t, limits, 0)
	for i := range int64(500) {
		f.append(now + i)
	}
	require.False(t, f.hit(now+500))
	size := footprint.Size(limits, 0, youth, 0)
	assert.Greater(t, size, len(f.value))
	assert.Less(t, float64(size), 1.05*float64(len(f.value)))
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
		size := footprint.Size(test.limits, test.retain, youth, 0)
		assert.Positive(t, size, test.name)
		assert.Equal(t, test.fits, size <= journal.MaxSize, "%s: %d bytes", test.name, size)
	}
}

// A log of hits at equal distances is what Spread says of it.
func TestSpread(t *testing.T) {
	for _, test := range []struct{ hits, window int64 }{
		{1, 3600_000}, {10, 3600_000}, {100, 3600_000}, {500, 3600_000}, {1000, 3600_000}, {30, 60_000}, {300, 60_000}, {10, 10_000}, {100, 10_000}, {20, 1000},
	} {
		limits := []journal.Limit{{Window: test.window, Ceiling: test.hits}}
		hits, rewritten, due := footprint.Spread(limits, 0, youth, 0)
		require.Equal(t, test.hits, hits)
		f := fill(t, limits, 0)
		smallest, largest := journal.MaxSize, 0
		all := 3*hits + hits*3*youth/test.window + 50
		for i := range all {
			f.append(now + i*test.window/hits)
			largest = max(largest, len(f.value))
			if f.rewriteIfDue(now+i*test.window/hits) && i > all*2/3 {
				smallest = min(smallest, len(f.value))
			}
		}
		assert.InEpsilon(t, smallest, rewritten, 0.1, "%+v", test)
		assert.InDelta(t, largest, due, max(0.1*float64(largest), 15), "%+v: but for one entry", test)
	}
}

// A log of hits that come as fast as a leaky bucket drains is no larger than what Spread says of it, nor much
// smaller, although it knows them until their turns, unless it is over half its bound.
func TestSpreadOfHitsThatWait(t *testing.T) {
	for _, limit := range []journal.Limit{
		{Window: 1000, Rate: 5, Ceiling: 11}, {Window: 60_000, Rate: 6, Ceiling: 31}, {Window: 1000, Rate: 20, Ceiling: 401}, {Window: 1000, Rate: 100, Ceiling: 1000},
	} {
		if bubble.RaceDetector && limit.Ceiling > 1000 { // one goroutine goes on for minutes
			continue
		}
		limits, waits := []journal.Limit{limit}, limit.Wait(0, limit.Ceiling-1)
		_, _, due := footprint.Spread(limits, 0, youth, waits)
		f := fill(t, limits, 0)
		f.waits = waits
		largest, hits := 0, 2*limit.Ceiling+10*limit.Rate
		for i := range hits {
			at := now + i*limit.Window/limit.Rate
			f.append(at)
			largest = max(largest, len(f.value))
			f.rewriteIfDue(at)
		}
		assert.InDelta(t, largest, due, max(0.15*float64(largest), 15), "%+v", limit)
		assert.LessOrEqual(t, len(f.value), footprint.Size(limits, 0, youth, waits), "%+v", limit)
	}
}

// Logs of hits that come at random are, on the average, what Growth says of them.
func TestGrowth(t *testing.T) {
	const logs = 25
	random := rand.New(rand.NewPCG(3, 0))
	for _, test := range []struct{ n, window int64 }{
		{1, 86_400_000}, {10, 86_400_000}, {50, 86_400_000}, {300, 86_400_000}, {1000, 3600_000}, {200, 30_000},
	} {
		n, window := test.n, test.window
		limits := []journal.Limit{{Window: window, Ceiling: 2000}}
		all := int(2*n + 100)
		sizes := make([]int, all)
		for range logs {
			f, time := fill(t, limits, 0), int64(now)
			for i := range all {
				time += int64(random.ExpFloat64() * float64(window) / float64(n))
				f.append(time)
				f.rewriteIfDue(time)
				sizes[i] += len(f.value)
			}
		}
		i, sum, grown := 0, 0, 0
		for size := range footprint.Growth(limits, window, youth, 0, n, math.Inf(1)) {
			sum, grown = sum+sizes[i], grown+size*logs
			if i++; i == all {
				break
			}
		}
		assert.InEpsilon(t, sum, grown, 0.05, "%+v", test)
	}
}

// A rewritten log of leases of which none is released takes no more than its size; one of about 300 fits.
func TestSizeOfLeases(t *testing.T) {
	const n = 50
	for _, length := range []int64{1000, 7000, 30_000, 600_000} {
		limit := journal.Limit{Window: length, Ceiling: n}
		f, id := fill(t, []journal.Limit{limit}, 0), journal.ID(0)
		for at := int64(0); at < 40_000; at += 200 {
			require.NoError(t, f.log.Read(f.value, journal.Question{}))
			for free := n - f.log.Held(limit, now+at).Count; free > 0; free-- {
				id++
				var err error
				f.value, err = journal.AppendEntry(f.value, journal.Entry{Kind: journal.Hit, Pending: true, ID: id, Time: now + at, Ends: now + at + length, Cost: 1, Count: 1})
				require.NoError(t, err)
			}
			require.NoError(t, f.log.Read(f.value, journal.Question{}))
			next, err := f.log.AppendRewrite(nil, journal.Rewrite{Now: now + at, Young: youth})
			require.NoError(t, err)
			require.LessOrEqual(t, len(next), footprint.LeasesSize(limit, youth), "%d", length)
			f.value = next
		}
	}
	assert.Less(t, footprint.LeasesSize(journal.Limit{Window: 30_000, Ceiling: 300}, youth), journal.MaxSize)
}
