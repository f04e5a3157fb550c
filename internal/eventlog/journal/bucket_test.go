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

// 20 at once, and then 10 a second, to the millisecond: also behind a rewrite, which forgets the hits.
func TestTokenBucket(t *testing.T) {
	for _, forget := range []bool{false, true} {
		value, admitted := hit(t, empty(t, bucket), 1, 0, 1, 30, bucket)
		assert.EqualValues(t, 20, admitted)
		if forget {
			log := read(t, value, journal.Question{})
			var err error
			value, err = log.AppendRewrite(nil, journal.Rewrite{Now: now + 50, Young: 50})
			require.NoError(t, err)
			assert.Less(t, len(value), 61)
			assert.Zero(t, read(t, value, journal.Question{}).Sum(0, maxTime))
		}
		for i, want := range map[int64]int64{1: 0, 99: 0, 100: 1, 199: 1, 200: 2, 1999: 19, 2000: 20, 9999: 20} {
			_, admitted = hit(t, value, 2, i, 1, 30, bucket)
			assert.Equal(t, want, admitted, "after %d ms", i)
		}
		log := read(t, value, journal.Question{Limits: []journal.Limit{bucket}, Revision: 7})
		assert.EqualValues(t, 20, log.Held(bucket, now).Count)
		assert.EqualValues(t, 11, log.Held(bucket, now+901).Count, "tokens are whole")
		assert.EqualValues(t, 11, log.Held(bucket, now+999).Count)
		assert.EqualValues(t, 10, log.Held(bucket, now+1000).Count)
		for cost, wait := range map[int64]int64{1: 100, 2: 200, 20: 2000} {
			at, ok := log.Frees(bucket, cost, now)
			assert.True(t, ok)
			assert.EqualValues(t, now+wait, at)
		}
		_, ok := log.Frees(bucket, 21, now)
		assert.False(t, ok)
	}
}

// A hit of before the last entry waits for the tokens that have returned by then.
func TestATokenBucketBehindALaterHit(t *testing.T) {
	value, _ := hit(t, empty(t, bucket), 1, 0, 20, 1, bucket)
	value, admitted := hit(t, value, 2, 1000, 1, 1, bucket)
	require.EqualValues(t, 1, admitted)
	at, ok := read(t, value, journal.Question{Limits: []journal.Limit{bucket}, Revision: 7}).Frees(bucket, 1, now)
	require.True(t, ok)
	assert.EqualValues(t, now+200, at)
	for time, want := range map[int64]int64{199: 0, 200: 1} {
		_, admitted = hit(t, value, 3, time, 1, 1, bucket)
		assert.Equal(t, want, admitted, "after %d ms", time)
	}
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

// What a void returns is as if its entry had never been, and what pending hits may return is known.
func TestAVoidReturnsTokens(t *testing.T) {
	value := pending(t, empty(t, bucket), journal.Hit, 1, 15)
	value, admitted := hit(t, value, 2, 0, 1, 9, bucket)
	assert.EqualValues(t, 5, admitted)
	log := read(t, value, journal.Question{Limits: []journal.Limit{bucket}, Revision: 7, Pending: now - 1})
	assert.Equal(t, journal.Content{Count: 20, Undecided: 15, Level: 20_000}, log.Held(bucket, now))
	value = pending(t, value, journal.Void, 1, 3)
	log = read(t, value, journal.Question{Limits: []journal.Limit{bucket}, Revision: 7})
	assert.Equal(t, journal.Content{Count: 8, Level: 8000}, log.Held(bucket, now))
	_, admitted = hit(t, value, 3, 0, 1, 30, bucket)
	assert.EqualValues(t, 12, admitted)
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

// An empty log has nothing in its buckets.
func TestATokenBucketOfAnEmptyLog(t *testing.T) {
	value, err := new(journal.Log).AppendRewrite(nil, journal.Rewrite{Limits: []journal.Limit{bucket}, Revision: 7, Now: now, Young: 1})
	require.NoError(t, err)
	log := read(t, value, journal.Question{})
	assert.Zero(t, log.Held(bucket, now))
	assert.Zero(t, new(journal.Log).Held(bucket, now))
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
