package journal_test

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/eventlog/journal"
)

// A log as 0.1.0 writes it: three limits, a hit of cost 1, and an increment, late and long. If a later version
// writes other bytes, it still has to read these, and needs another number in the header.
const firstVersion = "ec01306080a4a7da06a09c01f6c7ceb40dffc7ceb40d640000000000000007c1070513140a000089b0540903555443713e8a" +
	"7f21a3185c500000c0ffee000001d64340a3185c3c7800c0ffee0000020000012c8001a3185c50002add"

// firstRewrite is a log of 20 hits that 0.1.0 has rewritten, with sums in place of entries.
const firstRewrite = "ec014f2880a4a7da06c03ef6c7ceb40dffc7ceb40d64000000000000000781c2031414ea8fceb40de602e802e602e802e602" +
	"e802e602e802e602e802e602e802e602e802e602e802e602e802e6025dbf8a20"

func TestLogsOfTheFirstVersion(t *testing.T) {
	limits := []journal.Limit{{Window: 60_000, Ceiling: 5}, bucket, {Window: 86_400_000, Ceiling: 9, Tiles: true, Zone: time.UTC}}
	value, err := journal.AppendNew(nil, journal.Head{Limits: limits, Revision: 7, TTL: 100, Floor: now - 10_000, Since: 5999}, now)
	require.NoError(t, err)
	for _, entry := range []journal.Entry{
		{Kind: journal.Hit, ID: journal.NewID(0xC0FFEE, 1), Time: now, Cost: 1, Count: 1},
		{Kind: journal.Increment, ID: journal.NewID(0xC0FFEE, 2), Time: now - 5000, Cost: 300, Count: 1, Appended: now},
	} {
		value, err = journal.AppendEntry(value, entry)
		require.NoError(t, err)
	}
	assert.Equal(t, firstVersion, hex.EncodeToString(value), "a change of the format")
	first, err := hex.DecodeString(firstVersion)
	require.NoError(t, err)
	log := read(t, first, journal.Question{Limits: limits[:1], Keys: []journal.ID{journal.NewID(0xC0FFEE, 1)}, Revision: 7})
	require.Len(t, log.Head().Limits, 3)
	for i, limit := range log.Head().Limits {
		assert.Equal(t, [3]int64{limits[i].Window, limits[i].Rate, limits[i].Ceiling}, [3]int64{limit.Window, limit.Rate, limit.Ceiling})
	}
	assert.EqualValues(t, 301, log.Sum(0, maxTime))
	assert.Equal(t, firstRewrite, hex.EncodeToString(history(t, 20, true)), "a change of the format")
	rewritten, err := hex.DecodeString(firstRewrite)
	require.NoError(t, err)
	assert.EqualValues(t, 20, read(t, rewritten, journal.Question{}).Sum(0, maxTime))
}
