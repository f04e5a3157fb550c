package memcached

import (
	"fmt"
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

var slabLines = []string{
	"STAT 1:chunk_size 96", "STAT 1:used_chunks 3", "STAT 20:chunk_size 4544", "STAT 20:used_chunks 1",
	"STAT active_slabs 2", "STAT total_malloced 2097152",
}

func TestParseStats(t *testing.T) {
	s, err := parseStats(parseFigures(statLines))
	require.NoError(t, err)
	assert.InDelta(t, 1750001*time.Microsecond, s.CPU, 2)
	s.CPU = 0
	assert.Equal(t, Stats{Bytes: 3000, Gets: 42, Adds: 11, Evictions: 1, Items: 4}, s)

	_, err = parseStats(parseFigures(statLines[:5]))
	assert.ErrorContains(t, err, "bytes_written")
	_, err = parseStats(parseFigures(nil))
	assert.Error(t, err)
}

func TestParseMemory(t *testing.T) {
	m, err := parseMemory(parseFigures(statLines), parseFigures(slabLines))
	require.NoError(t, err)
	assert.Equal(t, Memory{Items: 4, ItemBytes: 244, ChunkBytes: 3*96 + 4544, SlabBytes: 2 << 20, HashBytes: 512 << 10}, m)

	_, err = parseMemory(parseFigures(statLines), parseFigures(slabLines[:4]))
	assert.ErrorContains(t, err, "total_malloced")
	_, err = parseMemory(parseFigures(statLines), parseFigures(slabLines[1:]))
	assert.ErrorContains(t, err, "1:chunk_size")
	_, err = parseMemory(parseFigures(nil), parseFigures(slabLines))
	assert.Error(t, err)
}

// What Memcached says it did is what was asked of it, to the byte, and asking is no
// part of it.
func TestStatsOfARealServer(t *testing.T) {
	m, err := Start(t.Context(), "memcached")
	require.NoError(t, err, "this test needs memcached: apt-get install memcached")
	defer func() { require.NoError(t, m.Close()) }()
	read := func() Stats {
		_, err := m.Memory()
		require.NoError(t, err)
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
	}, 10*time.Second, time.Millisecond, "%+v", &took)

	require.NoError(t, m.Fill(t.Context(), func(yield func(string) bool) {
		_ = yield("a") && yield("b")
	}))
	assert.EqualValues(t, 3, read().Items)
	err = m.Fill(t.Context(), func(yield func(string) bool) { yield("a") })
	assert.ErrorContains(t, err, "of 1 items 0 were made", "it is there already")
}

// What a real server says of its memory is what was put into it: items of known keys and
// values, with Memcached's header of 48 bytes, and 8 more for the number that tells its
// versions apart, in chunks of the sizes that the classes have.
func TestMemoryOfARealServer(t *testing.T) {
	m, err := Start(t.Context(), "memcached", "-m", "64")
	require.NoError(t, err, "this test needs memcached: apt-get install memcached")
	defer func() { require.NoError(t, m.Close()) }()
	empty, err := m.Memory()
	require.NoError(t, err)
	assert.Zero(t, empty.Items)
	assert.Zero(t, empty.ChunkBytes)
	assert.Positive(t, empty.HashBytes)

	const items, value = 20_000, 1000
	keys := func(yield func(string) bool) {
		for i := range items {
			if !yield(fmt.Sprintf("key-%06d", i)) {
				return
			}
		}
	}
	require.NoError(t, m.FillWith(t.Context(), keys, make([]byte, value)))
	full, err := m.Memory()
	require.NoError(t, err)
	own := int64(48 + 8 + len("key-000000") + 1 + value + len("\r\n"))
	assert.EqualValues(t, items, full.Items)
	assert.Equal(t, items*own, full.ItemBytes)
	assert.Equal(t, int64(1184*items), full.ChunkBytes, "1,184 is the size of the class that holds them")
	assert.GreaterOrEqual(t, full.SlabBytes, full.ChunkBytes)
	assert.Less(t, full.SlabBytes, full.ChunkBytes*11/10)
}
