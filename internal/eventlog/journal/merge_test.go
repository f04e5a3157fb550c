package journal_test

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/testkit"
)

// young returns an empty log whose floor is that many milliseconds from now.
func young(tb testing.TB, floor int64, limits ...journal.Limit) []byte {
	tb.Helper()
	value, err := journal.AppendNew(nil, journal.Head{Limits: limits, Revision: 7, TTL: 100, Floor: now + floor, Since: now + floor}, now)
	require.NoError(tb, err)
	return value
}

// hits appends pending hits of cost 1.
func hits(tb testing.TB, value []byte, ids ...journal.ID) []byte {
	tb.Helper()
	for _, id := range ids {
		value = pending(tb, bytes.Clone(value), journal.Hit, id, 1)
	}
	return value
}

func rewrite(tb testing.TB, value []byte, at int64) []byte {
	tb.Helper()
	next, err := read(tb, value, journal.Question{}).AppendRewrite(nil, journal.Rewrite{Now: now + at, Young: 1000, Retain: 60_000})
	require.NoError(tb, err)
	return next
}

// lacks reports whether a replica lacks anything.
func lacks(l journal.Lack) bool { return l.Missing || l.Keys || l.Sums || len(l.Entries) > 0 }

func TestMergeOfEqualValues(t *testing.T) {
	value := hits(t, young(t, -1000), 1)
	merged := journal.Merge([][]byte{value, bytes.Clone(value)}, keys(1), maxTime)
	assert.Same(t, &value[0], &merged.Value[0])
	assert.False(t, lacks(merged.Lacks[0]) || lacks(merged.Lacks[1]))
	assert.Nil(t, journal.Merge(nil, nil, maxTime).Value)
	assert.Equal(t, journal.Merged{Lacks: []journal.Lack{{Missing: true}, {Missing: true}}}, journal.Merge([][]byte{nil, nil}, nil, maxTime))
}

// What is ahead of a hit on any replica is ahead of it, and on one that lacks the hit is all.
func TestMergeKeepsAheadWhatIsAheadAnywhere(t *testing.T) {
	begin := young(t, -1000, journal.Limit{Window: 60_000, Ceiling: 2})
	for _, test := range []struct {
		a, b []journal.ID
		want int64
	}{
		{[]journal.ID{1, 2, 3}, []journal.ID{1, 2, 3, 4}, 0},
		{[]journal.ID{2, 1, 3}, []journal.ID{1, 2, 3}, 1},
		{[]journal.ID{2, 1}, []journal.ID{3, 1, 2}, 2},
		{[]journal.ID{1, 2, 3}, []journal.ID{2, 3}, 2},
	} {
		merged := journal.Merge([][]byte{hits(t, begin, test.a...), hits(t, begin, test.b...)}, keys(1), maxTime)
		q := journal.Question{Keys: keys(1), Limits: []journal.Limit{{Window: 60_000, Ceiling: 2}}, Revision: 7}
		log := read(t, merged.Value, q)
		assert.Equal(t, test.want, log.Ahead(0, 0).Count, "%v", test)
		assert.Equal(t, test.want < 2, log.Verdict(0).Admitted == 1, "%v", test)
	}
}

// A rewrite may have changed the order: what it kept is all ahead of an entry that it kept. What came
// later is behind.
func TestMergeOfAnEntryThatARewriteKept(t *testing.T) {
	begin := young(t, -1000, journal.Limit{Window: 60_000, Ceiling: 2})
	kept := hits(t, rewrite(t, hits(t, begin, 1, 2), 0), 3)
	for _, other := range [][]byte{kept, hits(t, begin, 1, 2, 3)} {
		merged := journal.Merge([][]byte{kept, other}, keys(1), maxTime)
		log := read(t, merged.Value, journal.Question{Keys: keys(1), Limits: []journal.Limit{{Window: 60_000, Ceiling: 2}}, Revision: 7})
		assert.EqualValues(t, 1, log.Ahead(0, 0).Count)
	}
}

// What is young may be on its way. But the entries of the reader must be on every replica.
func TestMergeOfYoungEntries(t *testing.T) {
	begin := young(t, -1000)
	for until, size := range map[int64]int{now - 1: 0, now: 15} {
		merged := journal.Merge([][]byte{hits(t, begin, 1, 2), hits(t, begin, 1)}, keys(1), until)
		assert.EqualValues(t, 2, read(t, merged.Value, journal.Question{}).Sum(0, maxTime))
		assert.Len(t, merged.Lacks[1].Entries, size)
		assert.False(t, lacks(merged.Lacks[0]) || merged.Lacks[1].Keys)
		merged = journal.Merge([][]byte{hits(t, begin, 1, 2), hits(t, begin, 1), nil}, keys(2), until)
		assert.Equal(t, []bool{false, true, true}, []bool{merged.Lacks[0].Keys, merged.Lacks[1].Keys, merged.Lacks[2].Keys})
	}
}

// reset returns an empty log in which nothing counts up to that many milliseconds from now.
func reset(tb testing.TB, at int64) []byte {
	tb.Helper()
	value, err := journal.AppendNew(nil, journal.Head{Revision: 7, TTL: 100, Floor: now - 1000, Since: now - 1000, Reset: now + at}, now+at)
	require.NoError(tb, err)
	return value
}

// What a replica holds that missed a reset counts only if it was appended after the reset. Its log is to be
// replaced.
func TestMergeOfAReset(t *testing.T) {
	later := func(value []byte, at int64, id journal.ID) []byte {
		value, err := journal.AppendEntry(bytes.Clone(value), journal.Entry{Kind: journal.Hit, Pending: true, ID: id, Time: now + at, Cost: 1, Count: 1})
		require.NoError(t, err)
		return value
	}
	old := hits(t, rewrite(t, hits(t, young(t, -1000), 1, 2, 3), 0), 4) // at now
	summed := rewrite(t, old, 5000)
	for name, test := range map[string]struct {
		old, reset []byte
		want       int64
	}{
		"entries":               {old, reset(t, 0), 0},
		"sums":                  {summed, reset(t, 5000), 0},
		"entries of later":      {later(later(summed, 5001, 5), 4900, 6), reset(t, 5000), 1},
		"on both":               {later(old, 7, 5), later(reset(t, 0), 7, 5), 1},
		"on one":                {old, later(reset(t, 0), 7, 5), 1},
		"stale":                 {later(old, 7, 5), later(reset(t, 9), 7, 5), 0},
		"rewritten since":       {rewrite(t, later(old, 100, 5), 2000), reset(t, 50), 5},
		"a reset before":        {later(reset(t, 0), 1, 5), reset(t, 1), 0},
		"rewritten by the rest": {summed, rewrite(t, later(reset(t, 5000), 5001, 5), 9000), 1},
	} {
		for _, values := range [][][]byte{{test.old, test.reset}, {test.reset, test.old, nil}} {
			merged := journal.Merge(values, nil, maxTime)
			log := read(t, merged.Value, journal.Question{})
			assert.Equal(t, test.want, log.Sum(0, maxTime), name)
			head := read(t, test.reset, journal.Question{}).Head()
			assert.Equal(t, head.Reset, log.Head().Reset, name)
			assert.GreaterOrEqual(t, log.Head().Floor, head.Reset, name)
			for i, value := range values {
				if bytes.Equal(value, test.old) {
					assert.True(t, merged.Lacks[i].Sums, name)
				}
			}
		}
	}
}

// A rewrite keeps a reset while what was before it may be in a window of another replica.
func TestARewriteKeepsAReset(t *testing.T) {
	value := reset(t, 0)
	for _, test := range []struct{ at, want int64 }{{0, now}, {61_000 - 1, now}, {61_000, 0}} {
		log := read(t, rewrite(t, value, test.at), journal.Question{})
		assert.Equal(t, test.want, log.Head().Reset, "%d", test.at)
	}
	assert.EqualValues(t, now, read(t, value, journal.Question{}).Latest())
	assert.EqualValues(t, now+9, read(t, hits(t, reset(t, 9), 1), journal.Question{}).Latest())
	_, err := journal.AppendNew(nil, journal.Head{Reset: -1}, now)
	assert.ErrorIs(t, err, journal.ErrOutOfRange)
}

// A late increment has its identity by the time when it was appended.
func TestMergeOfLateIncrements(t *testing.T) {
	late, err := journal.AppendEntry(nil, journal.Entry{Kind: journal.Increment, ID: 1, Time: now - 500_000, Appended: now, Cost: 1, Count: 1})
	require.NoError(t, err)
	a := append(young(t, -1000), late...)
	young := rewrite(t, a, 0)
	sums := rewrite(t, a, 5000)
	for _, values := range [][][]byte{{a, young}, {young, sums}, {a, sums}, {append(young, late...), append(sums, late...)}} {
		merged := journal.Merge(values, nil, maxTime)
		require.NoError(t, merged.Lacks[0].Err)
		assert.EqualValues(t, 1, read(t, merged.Value, journal.Question{}).Sum(now-500_000, now-500_000+999))
	}
}

// A value that is damaged, or of a newer release, is named, and the others are merged without it.
func TestMergeNamesDamagedValues(t *testing.T) {
	good := hits(t, young(t, -1000), 1)
	far, err := journal.AppendEntry(bytes.Clone(good), journal.Entry{Kind: journal.Hit, Pending: true, ID: 2, Time: now + 1<<38, Cost: 1, Count: 1})
	require.NoError(t, err)
	for want, value := range map[error][]byte{
		journal.ErrCorrupt: far,
		journal.ErrVersion: append([]byte{good[0], 2}, good[2:]...),
	} {
		merged := journal.Merge([][]byte{value, good, {}}, nil, maxTime)
		require.ErrorIs(t, merged.Lacks[0].Err, want)
		require.ErrorIs(t, merged.Lacks[2].Err, journal.ErrCorrupt)
		assert.False(t, lacks(merged.Lacks[0]) || lacks(merged.Lacks[1]) || lacks(merged.Lacks[2]))
		assert.EqualValues(t, 1, read(t, merged.Value, journal.Question{}).Sum(0, maxTime))
		require.Nil(t, journal.Merge([][]byte{value, nil}, nil, maxTime).Value)
	}
}

// What replicas hold together may be larger than an item: it is read, and rewritten.
func TestMergeOfLargeValues(t *testing.T) {
	const each = 50_000
	var values [][]byte
	for i := range journal.ID(2) {
		value := young(t, -1000)
		for n := range journal.ID(each) {
			var err error
			value, err = journal.AppendEntry(value, journal.Entry{Kind: journal.Hit, Pending: true, ID: n<<1 | i, Time: now, Cost: 1, Count: 1})
			require.NoError(t, err)
		}
		values = append(values, value)
	}
	merged := journal.Merge(values, nil, maxTime)
	require.Greater(t, len(merged.Value), 1<<20)
	require.EqualValues(t, 2*each, read(t, merged.Value, journal.Question{}).Sum(0, maxTime))
	next := rewrite(t, merged.Value, 2000)
	require.Less(t, len(next), 100)
	require.EqualValues(t, 2*each, read(t, next, journal.Question{}).Sum(0, maxTime))
}

// The limits are those of the newest rules.
func TestMergeOfHeads(t *testing.T) {
	var values [][]byte
	for _, head := range []journal.Head{{Revision: 1, TTL: 900}, {Revision: 2, TTL: 100}, {Revision: 2, TTL: 200}} {
		head.Floor, head.Limits = now-1000, []journal.Limit{{Window: 60_000, Ceiling: int64(head.Revision)}}
		value, err := journal.AppendNew(nil, head, now)
		require.NoError(t, err)
		values = append(values, value)
	}
	for range 10 {
		head := read(t, journal.Merge(values, nil, maxTime).Value, journal.Question{}).Head()
		assert.EqualValues(t, 2, head.Revision)
		assert.EqualValues(t, 2, head.Limits[0].Ceiling)
		assert.EqualValues(t, 200, head.TTL)
		rand.Shuffle(3, func(i, j int) { values[i], values[j] = values[j], values[i] })
	}
}

// A replica that is coarse has at the end of a minute or hour what another one has within it.
func TestMergeOfACoarseReplica(t *testing.T) {
	limit := journal.Limit{Window: 86_400_000}
	for _, step := range []int64{7000, 60_000} {
		fine := increments(t, 2500, step, limit)
		value, err := read(t, fine, journal.Question{}).AppendRewrite(nil, journal.Rewrite{Now: now, Young: 4000, Retain: 2500 * 60_000})
		require.NoError(t, err)
		require.NotZero(t, read(t, value, journal.Question{}).Head().Coarse)
		merged := journal.Merge([][]byte{fine, value}, nil, maxTime)
		assert.Equal(t, read(t, fine, journal.Question{}).Sum(0, maxTime), read(t, merged.Value, journal.Question{}).Sum(0, maxTime))
		assert.Equal(t, []journal.Lack{{}, {}}, merged.Lacks)
	}
}

// replicas are the values of a counter, and what counts of it.
type replicas struct {
	testing.TB
	random *rand.Rand
	values [][]byte
	truth  map[journal.ID]int64
	lost   bool // one is missing
}

// deliver appends an entry to some of the replicas that are there.
func (r *replicas) deliver(e journal.Entry) {
	for delivered := false; !delivered; {
		for i := range r.values {
			if r.values[i] == nil || r.random.IntN(3) == 0 {
				continue
			}
			var err error
			r.values[i], err = journal.AppendEntry(r.values[i], e)
			require.NoError(r, err)
			delivered = true
		}
	}
}

// merge holds the merged value against the truth, and against that of the values in another order.
func (r *replicas) merge() journal.Merged {
	merged := journal.Merge(r.values, nil, maxTime)
	log, sum := read(r, merged.Value, journal.Question{}), int64(0)
	for _, counts := range r.truth {
		sum += counts
	}
	require.Equal(r, sum, log.Sum(0, maxTime))
	order := r.random.Perm(len(r.values))
	var others [][]byte
	for _, i := range order {
		others = append(others, r.values[i])
	}
	other := journal.Merge(append(others, merged.Value), nil, maxTime)
	require.False(r, lacks(other.Lacks[len(order)]), "the merged value lacks nothing")
	require.Equal(r, maps.Collect(log.History(1)), maps.Collect(read(r, other.Value, journal.Question{}).History(1)))
	for i, lack := range merged.Lacks {
		require.NoError(r, lack.Err)
		require.Equal(r, len(lack.Entries), len(other.Lacks[slices.Index(order, i)].Entries))
	}
	return merged
}

// heal gives each replica what it lacks of the merged value.
func (r *replicas) heal() {
	merged := r.merge()
	for i, lack := range merged.Lacks {
		switch {
		case lack.Missing, lack.Sums:
			r.values[i] = bytes.Clone(merged.Value)
		default:
			r.values[i] = append(r.values[i], lack.Entries...)
		}
	}
	r.lost = false
	for _, lack := range r.merge().Lacks {
		require.False(r, lacks(lack))
	}
}

// FuzzMerge appends entries and voids to some replicas, loses and rewrites some: the merged value has
// all that was appended, once, in whatever order the values are merged.
func FuzzMerge(f *testing.F) {
	f.Add(uint64(1), uint8(50), uint8(5), []byte(nil))
	f.Add(uint64(2), uint8(255), uint8(200), []byte{1, 2})
	f.Add(uint64(3), uint8(90), uint8(30), []byte{0xEC, 1})
	f.Add(uint64(4), uint8(3), uint8(3), hits(f, rewrite(f, hits(f, young(f, -1000), 1, 2), 0), 3))
	f.Add(uint64(5), uint8(60), uint8(20), hits(f, reset(f, 600), 3))
	f.Fuzz(func(t *testing.T, seed uint64, entries, pace uint8, foreign []byte) {
		r := &replicas{TB: t, random: rand.New(rand.NewPCG(seed, 1)), truth: map[journal.ID]int64{}}
		step := 1 + 20*int64(pace)
		limits := []journal.Limit{{Window: 2000, Ceiling: 9}, {Window: 60_000, Ceiling: 90}, {Window: 1000, Rate: 5, Ceiling: 9}}
		for range 2 + r.random.IntN(2) {
			r.values = append(r.values, young(t, -20*step-1000, limits...))
		}
		for i := range int64(entries) {
			at := now + i*step
			e := journal.Entry{Kind: journal.Hit, Pending: true, ID: journal.ID(i), Time: at + r.random.Int64N(400), Cost: 1, Count: 1 + r.random.Int64N(3)}
			if r.random.IntN(4) == 0 {
				e.Kind, e.Pending = journal.Increment, false
				if r.random.IntN(2) == 0 {
					e.Time, e.Appended = at-r.random.Int64N(90_000), e.Time
				}
			}
			r.truth[e.ID] = e.Count
			r.deliver(e)
			if r.random.IntN(3) == 0 {
				void := journal.Entry{Kind: journal.Void, ID: journal.ID(max(0, i-r.random.Int64N(5))), Time: at, Count: r.random.Int64N(2)}
				r.truth[void.ID] = min(r.truth[void.ID], void.Count)
				r.deliver(void)
			}
			switch r.random.IntN(10) {
			case 0:
				r.heal()
			case 1:
				if r.heal(); !r.lost {
					r.values[r.random.IntN(len(r.values))], r.lost = nil, true
				}
			case 2, 3: // a rewrite, that some replicas miss
				merged := r.merge()
				next, err := read(t, merged.Value, journal.Question{}).AppendRewrite(nil, journal.Rewrite{Limits: limits, Revision: 7, Now: at, Young: 20*step + 1000, Retain: maxTime})
				require.NoError(t, err)
				for i := range r.values {
					if r.values[i] != nil && r.random.IntN(3) > 0 {
						r.values[i] = bytes.Clone(next)
					}
				}
			}
		}
		r.merge()
		want := maps.Collect(read(t, journal.Merge(append(slices.Clone(r.values), nil), nil, maxTime).Value, journal.Question{}).History(1))
		all := journal.Merge(append(slices.Clone(r.values), foreign), nil, maxTime)
		journal.Merge([][]byte{foreign, foreign}, keys(2), maxTime)
		if foreign != nil && all.Lacks[len(r.values)].Err != nil {
			require.Equal(t, want, maps.Collect(read(t, all.Value, journal.Question{}).History(1)))
		}
		spoiled := bytes.Clone(r.values[testkit.Pick(r.random, 0, 1)])
		if len(spoiled) > 0 {
			spoiled[r.random.IntN(len(spoiled))] ^= 0x41
			all = journal.Merge(append(slices.Clone(r.values), spoiled), nil, maxTime)
			require.Error(t, all.Lacks[len(r.values)].Err)
			require.Equal(t, want, maps.Collect(read(t, all.Value, journal.Question{}).History(1)))
		}
	})
}

func BenchmarkMerge(b *testing.B) {
	settled, entries := rewrite(b, history(b, 500, true), 0), hits(b, nil, keys(20)...)
	for name, values := range map[string][][]byte{
		"equal":  {append(bytes.Clone(settled), entries...), append(bytes.Clone(settled), entries...)},
		"differ": {append(bytes.Clone(settled), entries...), append(bytes.Clone(settled), entries[15:]...)},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if merged := journal.Merge(values, keys(1), maxTime); merged.Value == nil {
					b.Fatal("not merged")
				}
			}
		})
	}
}
