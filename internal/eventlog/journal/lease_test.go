package journal_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/eventlog/journal"
)

// appendEntry appends an entry to a copy of the value.
func appendEntry(tb testing.TB, value []byte, e journal.Entry) []byte {
	tb.Helper()
	value, err := journal.AppendEntry(bytes.Clone(value), e)
	require.NoError(tb, err)
	return value
}

// lease is a pending hit of cost 1 at that many milliseconds from now, which ends so many later.
func lease(id journal.ID, at, length int64) journal.Entry {
	return journal.Entry{Kind: journal.Hit, Pending: true, ID: id, Time: now + at, Ends: now + at + length, Cost: 1, Count: 1}
}

func release(id journal.ID, at int64) journal.Entry {
	return journal.Entry{Kind: journal.Void, ID: id, Time: now + at}
}

// rewriteOf rewrites a log with the limits that it has; entries are young for a second.
func rewriteOf(tb testing.TB, value []byte, at int64) []byte {
	tb.Helper()
	next, err := read(tb, value, journal.Question{}).AppendRewrite(nil, journal.Rewrite{Now: now + at, Young: 1000, Retain: 1000})
	require.NoError(tb, err)
	return next
}

// What counts no more is not in the next rewrite of a log that has no other replica, or leases that come and go
// would fill it. Else it stays for as long as its writer looks for it, and no longer.
func TestARewriteDropsWhatIsVoid(t *testing.T) {
	begin := empty(t, journal.Limit{Window: 30_000, Ceiling: 2})
	alone := func(value []byte) []byte {
		next, err := read(t, value, journal.Question{}).AppendRewrite(nil, journal.Rewrite{Now: now + 20, Young: 1000, Retain: 1000, Alone: true})
		require.NoError(t, err)
		return next
	}
	size := len(rewriteOf(t, begin, 0))
	taken := appendEntry(t, begin, lease(1, 0, 30_000))
	void := appendEntry(t, taken, release(1, 10))
	assert.Len(t, alone(void), size)
	assert.Len(t, alone(appendEntry(t, appendEntry(t, begin, release(1, 10)), lease(1, 0, 30_000))), size, "in any order")
	denied := lease(1, 0, 30_000)
	denied.Pending, denied.Cost = false, 3
	assert.Greater(t, len(alone(appendEntry(t, begin, denied))), size, "its writer looks for it")
	log := read(t, rewriteOf(t, void, 20), journal.Question{Keys: keys(1)})
	assert.Equal(t, journal.Verdict{Found: true}, log.Verdict(0))
	assert.Len(t, rewriteOf(t, void, 1010), size)
	lone := appendEntry(t, begin, release(1, 10))
	assert.Greater(t, len(alone(lone)), size, "its entry may come yet")
}

// An entry with an end is a record on each replica, or in the sums of each: it counts once however their
// floors differ. One that a replica lacks is appended to it, and counts there, however old it is.
func TestMergeOfLeases(t *testing.T) {
	limit := journal.Limit{Window: 30_000, Ceiling: 9}
	begin := young(t, -1000, limit)
	a := begin
	for id := range journal.ID(3) {
		a = appendEntry(t, a, lease(id+1, 0, 10_000*int64(id+1)))
	}
	for at := int64(500); at < 34_000; at += 3100 {
		b := rewriteOf(t, a, at)
		want := read(t, a, journal.Question{}).Held(limit, now+at)
		for _, values := range [][][]byte{{a, b}, {b, a}, {young(t, at-1000, limit), b}, {young(t, at-1000, limit), a}} {
			merged := journal.Merge(values, nil, maxTime)
			assert.Equal(t, want, read(t, merged.Value, journal.Question{}).Held(limit, now+at), "at %d", at)
			if at < 10_000 {
				for i, lack := range merged.Lacks {
					assert.False(t, lack.Sums)
					repaired := append(bytes.Clone(values[i]), lack.Entries...)
					assert.Equal(t, want, read(t, repaired, journal.Question{}).Held(limit, now+at), "replica %d at %d", i, at)
				}
			}
		}
	}
}

// A lease that a reset has forgotten does not come back from a replica that missed the reset, also if its
// log was rewritten since.
func TestMergeOfAResetWithLeases(t *testing.T) {
	limit := journal.Limit{Window: 30_000, Ceiling: 9}
	old := appendEntry(t, young(t, -1000, limit), lease(1, 0, 30_000))
	for _, missed := range [][]byte{old, rewriteOf(t, old, 500), rewriteOf(t, old, 9000)} {
		missed = appendEntry(t, missed, lease(2, 6000, 30_000))
		merged := journal.Merge([][]byte{missed, reset(t, 5000)}, nil, maxTime)
		log := read(t, merged.Value, journal.Question{Keys: keys(2)})
		assert.False(t, log.Verdict(0).Found && log.Verdict(0).Counted > 0)
		assert.EqualValues(t, 1, log.Held(limit, now+9000).Count)
		assert.True(t, merged.Lacks[0].Sums)
		late := appendEntry(t, reset(t, 5000), lease(1, 0, 30_000))
		assert.Zero(t, read(t, late, journal.Question{}).Held(limit, now+9000).Count)
	}
}

// A replica that has forgotten a released lease does not get it again, and of two settlements of one
// reservation the larger counts.
func TestMergeOfReleasesAndSettlements(t *testing.T) {
	begin := appendEntry(t, young(t, -1000), lease(1, 0, 30_000))
	released := appendEntry(t, begin, release(1, 2000))
	merged := journal.Merge([][]byte{released, rewriteOf(t, released, 5000)}, nil, maxTime)
	assert.Zero(t, read(t, merged.Value, journal.Question{}).Sum(0, maxTime))
	assert.False(t, lacks(merged.Lacks[0]) || lacks(merged.Lacks[1]))

	settle := func(cost int64) []byte {
		return appendEntry(t, released, journal.Entry{
			Kind: journal.Increment, ID: journal.ID(1).Settlement(), Time: now, Appended: now + 2000, Ends: now + 30_000, Cost: cost, Count: 1,
		})
	}
	for _, values := range [][][]byte{{settle(3), settle(7)}, {settle(7), settle(3)}, {settle(7), settle(0), begin}} {
		merged = journal.Merge(values, nil, maxTime)
		assert.EqualValues(t, 7, read(t, merged.Value, journal.Question{}).Sum(0, maxTime))
	}
}

// FuzzEntry appends any entry, which is read as it was.
func FuzzEntry(f *testing.F) {
	f.Add(uint8(1), true, uint64(7), int64(0), int64(0), int64(0), int64(1), int64(1))
	f.Add(uint8(2), false, uint64(1<<56-1), int64(-5000), int64(1), int64(60_000), int64(0), int64(1))
	f.Add(uint8(3), true, uint64(0), int64(9), int64(0), int64(0), int64(0), int64(3))
	f.Fuzz(func(t *testing.T, kind uint8, flag bool, id uint64, time, appended, ends, cost, count int64) {
		near := func(time int64) int64 { return now + time%(1<<38) }
		e := journal.Entry{Kind: journal.Kind(kind), ID: journal.ID(id), Time: near(time), Cost: cost, Count: count}
		e.Pending = flag && e.Kind != journal.Void
		if appended != 0 {
			e.Appended = near(appended)
		}
		if ends != 0 {
			e.Ends = near(ends)
		}
		begin := empty(t, journal.Limit{Window: 1000, Ceiling: 1})
		value, err := journal.AppendEntry(bytes.Clone(begin), e)
		if err != nil {
			require.ErrorIs(t, err, journal.ErrOutOfRange)
			return
		}
		var log journal.Log
		require.NoError(t, log.Read(value, journal.Question{Keys: []journal.ID{e.ID}}))
		for cut := len(begin) + 1; cut < len(value); cut++ {
			require.ErrorIs(t, log.Read(value[:cut], journal.Question{}), journal.ErrCorrupt)
		}
		require.NoError(t, log.Read(value, journal.Question{Keys: []journal.ID{e.ID}}))
		if e.Kind != journal.Void && log.Verdict(0).Found {
			require.Equal(t, e, log.Entry(0))
		}
	})
}

// While replicas hold different entries, what was released stays: one may have the lease without its void.
func TestARewriteThatKeepsAllKeepsWhatWasReleased(t *testing.T) {
	taken := appendEntry(t, young(t, -1000), lease(1, 0, 30_000))
	released := appendEntry(t, taken, release(1, 10))
	kept, err := read(t, released, journal.Question{}).AppendRewrite(nil, journal.Rewrite{Now: now + 20, Young: now + 20, Retain: 1000})
	require.NoError(t, err)
	merged := journal.Merge([][]byte{kept, taken}, nil, maxTime)
	assert.Zero(t, read(t, merged.Value, journal.Question{}).Sum(0, maxTime))
}

// A lease that is appended again with a later end has it at its place: what follows counts it until then. On
// replicas the later end counts, and the other one lacks it. What is void stays void.
func TestALeaseIsExtended(t *testing.T) {
	limit := journal.Limit{Window: 30_000, Ceiling: 1}
	one := lease(1, 0, 30_000)
	longer := one
	longer.Time, longer.Appended, longer.Ends = now+20_000, now+20_000-1, now+50_000
	taken := appendEntry(t, young(t, -1000, limit), one)
	between := appendEntry(t, taken, journal.Entry{Kind: journal.Hit, ID: 2, Time: now + 10_000, Ends: now + 40_000, Cost: 1, Count: 1})
	extended := appendEntry(t, appendEntry(t, between, longer), longer)
	for _, value := range [][]byte{extended, rewriteOf(t, extended, 22_000)} {
		log := read(t, value, journal.Question{Keys: keys(2)})
		assert.Equal(t, []int64{1, 0}, admitted(log, 2))
		assert.EqualValues(t, now+50_000, log.Entry(0).Ends)
		assert.EqualValues(t, now, log.Entry(0).Appended)
		assert.EqualValues(t, 1, log.Held(limit, now+49_000).Count)
		assert.Zero(t, log.Held(limit, now+50_000).Count)
		assert.True(t, log.LaterThan(now, 2))
		assert.False(t, log.LaterThan(now+1, 2))
		void := appendEntry(t, appendEntry(t, value, journal.Entry{Kind: journal.Void, ID: 1, Time: now + 23_000}), longer)
		assert.Zero(t, read(t, void, journal.Question{}).Held(limit, now+23_000).Count)
	}
	extended = appendEntry(t, taken, longer)
	for i, values := range [][][]byte{{extended, taken}, {taken, extended}} {
		merged := journal.Merge(values, nil, maxTime)
		assert.EqualValues(t, 1, read(t, merged.Value, journal.Question{}).Held(limit, now+49_000).Count)
		assert.False(t, lacks(merged.Lacks[i]))
		repaired := append(bytes.Clone(taken), merged.Lacks[1-i].Entries...)
		assert.EqualValues(t, 1, read(t, repaired, journal.Question{}).Held(limit, now+49_000).Count)
	}
}
