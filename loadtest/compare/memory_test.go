package compare

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/memcached"
	"github.com/counterd/counterd/memcache"
)

// A chunk is as large as the one that a real Memcached takes for such a value, of a key of
// counterd's.
func TestChunksAreMemcacheds(t *testing.T) {
	server, err := memcached.Start(t.Context(), "memcached", "-m", "64")
	require.NoError(t, err, "this test needs memcached: apt-get install memcached")
	defer func() { require.NoError(t, server.Close()) }()
	before := int64(0)
	for i, value := range []int{1, 8, 9, 16, 24, 33, 34, 65, 400, 1000, 4000, 4457, 4458, 50_000, 200_000, 300_000, 394_000, 420_000, 524_000} {
		keys := memcache.Keys("c", []uint64{uint64(i)})
		require.NoError(t, server.FillWith(t.Context(), func(yield func(string) bool) { yield(keys[0]) }, make([]byte, value)))
		memory, err := server.Memory()
		require.NoError(t, err)
		assert.Equal(t, memory.ChunkBytes-before, chunkOf(value), "%d bytes", value)
		before = memory.ChunkBytes
	}
	assert.Equal(t, int64(2*largestChunk), chunkOf(600_000), "beyond the largest it is several")
}

// A state is of as many numbers as its item has.
func TestItemsOfStates(t *testing.T) {
	assert.EqualValues(t, 2*8, unsafe.Sizeof(fixedState{}))
	assert.EqualValues(t, 3*8, unsafe.Sizeof(twoWindowsState{}))
	l := limit{100, 60 * second}
	for name, c := range map[string]struct {
		algorithm
		value int
	}{
		"fixed": {newFixed(l), 16}, "two windows": {newTwoWindows(l), 24}, "bucket": {newBucket(l), 16}, "GCRA": {newGCRA(l), 8},
		"log": {newSlidingLog(l), 3 * 8}, "racing": {newRacing(l, 2), 3 * 8},
	} {
		n, _ := c.items("f")
		assert.Zero(t, n, name)
		for _, cost := range []int64{1, 2} {
			_, err := c.decide(t.Context(), "f", opening.UnixNano(), cost)
			require.NoError(t, err)
		}
		n, value := c.items("f")
		assert.Equal(t, 1, n, name)
		assert.Equal(t, c.value, value, name)
	}
}

// The memory that is measured is what it can be reckoned to be: to the byte what lies in
// Memcached, and within the slack of Go's maps and slices what lies in the heap.
func TestMeasureMemory(t *testing.T) {
	const users, n = 2000, 20
	l := events.Limit{N: n, Window: 10 * time.Minute}
	found, err := MeasureMemory(t.Context(), MemoryConfig{Users: users, Limit: l, Memcached: "memcached"})
	require.NoError(t, err, "this test needs memcached: apt-get install memcached")
	assert.Equal(t, users, found.Users)
	assert.Equal(t, "20/10m", found.Limit)
	rows := map[string]MemoryRow{}
	for _, row := range found.Rows {
		rows[row.Name] = row
	}
	require.Len(t, rows, 7)

	// A slot of a map has a name's header, the state and a byte; between 7/16 and 7/8 of
	// the slots are taken.
	limiter := float64(unsafe.Sizeof(rate.Limiter{}))
	for name, c := range map[string]struct{ state, apart, value float64 }{
		"fixed window": {16, 0, 16}, "two windows": {24, 0, 24}, "GCRA": {8, 0, 8}, "token bucket": {8, limiter, 16},
		"sliding log": {24, 8 * n, 8 * n},
	} {
		row, slot := rows[name], 16+c.state+1
		assert.GreaterOrEqual(t, row.Heap, slot*8/7*0.95+c.apart, name)
		assert.LessOrEqual(t, row.Heap, slot*16/7*1.1+c.apart*2, name)
		item := 48 + 8 + 28 + 1 + c.value + 2
		assert.Equal(t, 1.0, row.Items, name)
		assert.Equal(t, item, row.ItemBytes, name)
		assert.Equal(t, float64(chunkOf(int(c.value))), row.ChunkBytes, name)
		assert.Equal(t, row.ChunkBytes*1e6, row.Million, name)
	}

	for name, precision := range map[string]events.Precision{"counterd": events.Second, "counterd, precision: minute": events.Minute} {
		buckets, bytes := bucketsOf(users, l, precision)
		row := rows[name]
		// The marker is an item, too.
		assert.InDelta(t, float64(buckets)/users, row.Items, 1.5/users, name)
		assert.InDelta(t, float64(bytes)/users, row.ItemBytes, 200.0/users, name)
		assert.InDelta(t, float64(buckets*96)/users, row.ChunkBytes, 200.0/users, name)
		assert.GreaterOrEqual(t, row.SlabBytes, row.ChunkBytes, name)
		assert.Greater(t, row.Heap, float64(buckets)*16/users, name)
		assert.Less(t, row.Heap, 600+float64(buckets)*64/users, "the store's own reckoning is from above")
	}
	assert.InDelta(t, 1.0*n+11, rows["counterd"].Items, 1)
}

// bucketsOf returns how many buckets the users' hits make, and the bytes of their items,
// by a set of all of them.
func bucketsOf(users int64, l events.Limit, precision events.Precision) (n, bytes int64) {
	type bucket struct{ user, level, number int64 }
	values := map[bucket]int{}
	all := l.N * users
	for i := range all {
		at := (opening.UnixNano() + int64(float64(int64(l.Window)-second)*(float64(i)/float64(all)))) / second
		for level, length := range []int64{1, 60} {
			if level >= int(precision) {
				values[bucket{i % users, int64(level), at / length}]++
			}
		}
	}
	for _, value := range values {
		bytes += 48 + 8 + 28 + 1 + int64(len(fmt.Sprint(value))) + 2
	}
	return int64(len(values)), bytes
}

// A store that has lost what was put into it is not measured.
func TestAStoreThatForgets(t *testing.T) {
	m := &measurement{MemoryConfig: MemoryConfig{Users: 5, Limit: smallLimit}}
	f := &filler{measurement: m, event: eventOf(smallLimit, zipfKind, events.Second)}
	for i := range m.Users {
		f.features = append(f.features, events.Features{zipfKind: fmt.Sprint(i)})
	}
	require.NoError(t, f.fill(t.Context(), "", memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: f.clock.now})))
	f.clock.set(0)
	err := f.fill(t.Context(), "", memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: f.clock.now, MaxBytes: 1}))
	assert.ErrorContains(t, err, "of 40 hits")
}

func TestWrongMemoryConfigs(t *testing.T) {
	good := MemoryConfig{Users: 1, Limit: smallLimit, Memcached: "memcached"}
	require.NoError(t, good.Check())
	for text, spoil := range map[string]func(*MemoryConfig){
		"users are 1 to":      func(c *MemoryConfig) { c.Users = 0 },
		"limit is at least 1": func(c *MemoryConfig) { c.Limit.N = 0 },
		"memcached is needed": func(c *MemoryConfig) { c.Memcached = "no-such-program" },
		"more than 5,000,000,000 hits": func(c *MemoryConfig) {
			c.Users, c.Limit.N = MaxUsers, 1000
		},
	} {
		wrong := good
		spoil(&wrong)
		_, err := MeasureMemory(t.Context(), wrong)
		assert.ErrorContains(t, err, text)
	}
}

func TestWriteMemory(t *testing.T) {
	var text strings.Builder
	r := &MemoryReport{Users: 2000, Limit: "500/h", Rows: []MemoryRow{
		{Name: "counterd", Heap: 27_550.6, Items: 563, ItemBytes: 49_548, ChunkBytes: 54_048, SlabBytes: 54_526, Million: 54_048e6},
	}}
	require.NoError(t, r.WriteText(&text))
	assert.Contains(t, text.String(), "2,000 users who have used up 500/h, their hits spread over its window\n")
	assert.Contains(t, text.String(), "counterd            27,551          563.0       49,548  54,048  54,526          54 GB\n")
	assert.Contains(t, text.String(), "scaled from 2,000\n")
	r.Users = million
	text.Reset()
	require.NoError(t, r.WriteText(&text))
	assert.NotContains(t, text.String(), "scaled")
}
