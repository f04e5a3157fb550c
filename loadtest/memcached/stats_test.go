package memcached

import (
	"testing"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var statLines = []string{
	"STAT pid 7", "STAT version 1.6.18", "STAT rusage_user 1.250000", "STAT rusage_system 0.500001", "STAT bytes_read 1000",
	"STAT bytes_written 2000", "STAT get_hits 30", "STAT get_misses 12", "STAT incr_hits 5", "STAT total_items 6",
	"STAT evictions 1", "STAT curr_items 4", "STAT cmd_touch 99", "STAT bytes 244", "STAT hash_bytes 524288",
}

func TestParseStats(t *testing.T) {
	s, err := parseStats(statLines)
	require.NoError(t, err)
	assert.InDelta(t, 1750001*time.Microsecond, s.CPU, 2)
	s.CPU = 0
	assert.Equal(t, Stats{Bytes: 3000, Gets: 42, Adds: 11, Evictions: 1, Items: 4}, s)

	_, err = parseStats(statLines[:5])
	assert.ErrorContains(t, err, "no figure")
	_, err = parseStats(nil)
	assert.Error(t, err)
}

// What Memcached says it did is what was asked of it, to the byte, and asking is no
// part of it.
func TestStatsOfARealServer(t *testing.T) {
	m, err := Start(t.Context(), "memcached")
	require.NoError(t, err, "this test needs memcached: apt-get install memcached")
	defer func() { require.NoError(t, m.Close()) }()
	read := func() Stats {
		s, err := m.Stats()
		require.NoError(t, err)
		return s
	}
	before := read()
	for range 5 {
		idle := read().Minus(before)
		idle.CPU = 0
		assert.Zero(t, idle)
	}

	client := gomemcache.New(m.Addr)
	defer client.Close()
	require.NoError(t, client.Add(&gomemcache.Item{Key: "k", Value: []byte("1")}))
	for range 3 {
		_, err := client.Increment("k", 1)
		require.NoError(t, err)
	}
	_, err = client.GetMulti([]string{"k", "l"})
	require.NoError(t, err)
	sent := len("add k 0 0 1\r\n1\r\n") + 3*len("incr k 1\r\n") + len("gets k l\r\n")
	answered := len("STORED\r\n") + 3*len("2\r\n") + len("VALUE k 0 1 9\r\n4\r\nEND\r\n")
	var took Stats
	// What has been answered last may not be in the figures yet.
	assert.Eventually(t, func() bool {
		took = read().Minus(before)
		took.CPU = 0
		return took == Stats{Bytes: int64(sent + answered), Gets: 2, Adds: 4, Items: 1}
	}, time.Minute, time.Millisecond, "%+v", &took)

	require.NoError(t, m.Fill(t.Context(), func(yield func(string) bool) {
		_ = yield("a") && yield("b")
	}))
	assert.EqualValues(t, 3, read().Items)
	err = m.Fill(t.Context(), func(yield func(string) bool) { yield("a") })
	assert.ErrorContains(t, err, "of 1 items 0 were made", "it is there already")
}
