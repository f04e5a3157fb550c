package journal_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/eventlog/journal"
)

var bucket = journal.Limit{Window: 1000, Rate: 10, Ceiling: 20}

// hit appends count hits that are not pending, and returns the log and how many are admitted.
func hit(tb testing.TB, value []byte, id journal.ID, time, cost, count int64, limits ...journal.Limit) ([]byte, int64) {
	tb.Helper()
	value, err := journal.AppendEntry(value, journal.Entry{Kind: journal.Hit, ID: id, Time: now + time, Cost: cost, Count: count})
	require.NoError(tb, err)
	log := read(tb, value, journal.Question{Keys: []journal.ID{id}, Limits: limits, Revision: 7})
	return value, log.Verdict(0).Admitted
}

// A burst that changes leaves the level as it is: a smaller one denies what it does not cover.
func TestATokenBucketKeepsItsLevelOverAChangeOfItsBurst(t *testing.T) {
	value, _ := hit(t, empty(t, bucket), 1, 0, 1, 15, bucket)
	for burst, want := range map[int64]int64{10: 0, 16: 1, 20: 5, 40: 25} {
		other := bucket
		other.Ceiling = burst
		log := read(t, value, journal.Question{Limits: []journal.Limit{other}, Revision: 8})
		next, err := log.AppendRewrite(nil, journal.Rewrite{Limits: []journal.Limit{other}, Revision: 8, Now: now, Young: 0})
		require.NoError(t, err)
		_, admitted := hit(t, next, 2, 1, 1, 30, other)
		assert.Equal(t, want, admitted, "burst %d", burst)
	}
}

// A bucket with another rate begins with the events that the log still has, and says since when it
// knows all of them.
func TestANewTokenBucketBeginsWithWhatTheLogHas(t *testing.T) {
	window := journal.Limit{Window: 60_000, Ceiling: 100}
	value, _ := hit(t, empty(t, window), 1, 0, 1, 15)
	log := read(t, value, journal.Question{})
	value, err := log.AppendRewrite(nil, journal.Rewrite{Now: now + 10, Young: 10, Since: now - 500})
	require.NoError(t, err)
	log = read(t, value, journal.Question{Limits: []journal.Limit{bucket}, Revision: 8})
	assert.EqualValues(t, 15, log.Held(bucket, now).Count)
	assert.EqualValues(t, now-1, log.Since(bucket))
	value, err = log.AppendRewrite(nil, journal.Rewrite{Limits: []journal.Limit{bucket}, Revision: 8, Now: now + 10, Young: 10})
	require.NoError(t, err)
	log = read(t, value, journal.Question{Limits: []journal.Limit{bucket}, Revision: 8})
	assert.EqualValues(t, 15, log.Held(bucket, now).Count)
	assert.EqualValues(t, now-1, log.Since(bucket))
	value, err = log.AppendRewrite(nil, journal.Rewrite{Limits: []journal.Limit{bucket}, Revision: 8, Now: now + 2010, Young: 10})
	require.NoError(t, err)
	log = read(t, value, journal.Question{})
	assert.Zero(t, log.Since(bucket), "it has been full since")
	assert.Zero(t, log.Held(bucket, now+2000).Count)
}

// Increments take tokens that the bucket does not have, for 60 days of its rate at the most.
func TestIncrementsAreADebt(t *testing.T) {
	value, err := journal.AppendEntry(empty(t, bucket), journal.Entry{Kind: journal.Increment, ID: 1, Time: now, Cost: 50, Count: 1})
	require.NoError(t, err)
	_, admitted := hit(t, value, 2, 3000, 1, 1, bucket)
	assert.Zero(t, admitted)
	_, admitted = hit(t, value, 2, 3100, 1, 1, bucket)
	assert.EqualValues(t, 1, admitted)
	for i := range journal.ID(3) {
		value, err = journal.AppendEntry(value, journal.Entry{Kind: journal.Increment, ID: 3 + i, Time: now, Cost: 1<<32 - 1, Count: 1<<14 - 1})
		require.NoError(t, err)
	}
	log := read(t, value, journal.Question{Limits: []journal.Limit{bucket}})
	assert.EqualValues(t, now+60*86_400_000+1, log.Drained())
}

func TestTokenBucketsOutOfRange(t *testing.T) {
	for name, limit := range map[string]journal.Limit{
		"refills for more than 30 days": {Window: 86_400_000, Rate: 1, Ceiling: 31},
		"rate":                          {Window: 1000, Rate: 1<<28 + 1, Ceiling: 1},
		"a rate below 0":                {Window: 1000, Rate: -1, Ceiling: 1},
	} {
		_, err := journal.AppendNew(nil, journal.Head{Limits: []journal.Limit{limit}}, now)
		require.ErrorIs(t, err, journal.ErrOutOfRange, name)
	}
}

// A rewrite whose floor is between two hits, of which the first in the log has the later time, leaves the level as it is:
// the next hit waits behind both.
func TestARewriteLowersNoLevel(t *testing.T) {
	deep := journal.Limit{Window: 1000, Rate: 10, Ceiling: 40}
	value, _ := hit(t, empty(t, deep), 1, 1000, 1, 10, deep)
	value, _ = hit(t, value, 2, 0, 1, 10, deep) // by a clock that is a second behind
	value, _ = hit(t, value, 3, 500, 1, 5, deep)
	for _, floor := range []int64{-1, 0, 499, 500, 999, 1000, 1200} {
		log := read(t, rewrite(t, value, floor+1000), journal.Question{})
		assert.EqualValues(t, 25, log.Held(deep, now+1000).Count, "floor %d", floor)
		assert.EqualValues(t, 23, log.Held(deep, now+1200).Count, "floor %d", floor)
	}
}

// Of replicas the fullest bucket counts, and then what all of them have.
func TestMergeOfTokenBuckets(t *testing.T) {
	bucket := journal.Limit{Window: 60_000, Rate: 10, Ceiling: 20}
	begin := young(t, -1000, bucket)
	a := pending(t, begin, journal.Hit, 1, 7)
	rewritten := rewrite(t, a, 2000)
	b := pending(t, pending(t, begin, journal.Hit, 1, 7), journal.Hit, 2, 3)
	for _, values := range [][][]byte{{rewritten, b}, {b, rewritten}} {
		merged := journal.Merge(values, nil, maxTime)
		log := read(t, merged.Value, journal.Question{})
		assert.EqualValues(t, 10, log.Held(bucket, now+1000).Count)
		for i, lack := range merged.Lacks {
			assert.Equal(t, &values[i][0] == &rewritten[0], lack.Sums, i)
		}
		assert.False(t, lacks(journal.Merge([][]byte{merged.Value, values[0]}, nil, maxTime).Lacks[0]))
	}
	// A reset empties the bucket.
	merged := journal.Merge([][]byte{b, reset(t, 500)}, nil, maxTime)
	assert.Zero(t, read(t, merged.Value, journal.Question{Limits: []journal.Limit{bucket}}).Held(bucket, now+500).Count)
}
