package compare

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// A real Memcached takes as many bytes for counterd's counters as their rows have.
func TestBytesAreMemcacheds(t *testing.T) {
	const users = 50
	for _, precision := range []events.Precision{events.Second, events.Minute} {
		server, err := memcached.Start(t.Context(), "memcached", "-m", "64")
		require.NoError(t, err, "this test needs memcached: apt-get install memcached")
		h, err := newHierarchical(events.Limit{N: 20, Window: 10 * time.Minute}, zipfKind, precision)
		require.NoError(t, err)
		fleet, err := memcache.NewFleet(t.Context(), memcache.Config{Servers: []string{server.Addr}, Timeout: time.Minute, Clock: h.clock.now})
		require.NoError(t, err)
		require.NoError(t, h.on(fleet))
		for i := range int64(users * 20) {
			admitted, err := h.decide(t.Context(), fmt.Sprint("user-", i%users), opening.UnixNano()+i*599*second/(users*20), 1)
			require.NoError(t, err)
			require.True(t, admitted)
		}
		want := int64(0)
		for i := range users {
			want += bytesOf(h.items(fmt.Sprint("user-", i)))
		}
		memory, err := server.Memory()
		require.NoError(t, err)
		assert.InDelta(t, want, memory.ChunkBytes, smallestChunk, "the instance marker is an item, too")
		require.NoError(t, fleet.Close())
		require.NoError(t, server.Close())
	}
}
