package compare

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/loadtest/memcached"
	"github.com/counterd/counterd/memcache"
)

// chunkBytes returns the bytes of all chunks in use.
func chunkBytes(t *testing.T, server *memcachedtest.Server) (sum int64) {
	t.Helper()
	slabs := server.Stats("slabs")
	for name, used := range slabs {
		if class, found := strings.CutSuffix(name, ":used_chunks"); found {
			chunks, err := strconv.ParseInt(used, 10, 64)
			require.NoError(t, err)
			size, err := strconv.ParseInt(slabs[class+":chunk_size"], 10, 64)
			require.NoError(t, err)
			sum += chunks * size
		}
	}
	return sum
}

// A chunk is as large as the one that a real Memcached takes for such a value, of a key of
// counterd's.
func TestChunksAreMemcacheds(t *testing.T) {
	server := memcachedtest.Start(t, "-m", "64")
	before := int64(0)
	for i, value := range []int{1, 8, 9, 16, 24, 33, 34, 65, 400, 1000, 4000, 4457, 4458, 50_000, 200_000, 300_000, 394_000, 420_000, 524_000} {
		keys := memcache.Keys("c", []uint64{uint64(i)})
		require.Equal(t, []string{"STORED"}, server.Ask(fmt.Sprintf("set %s 0 0 %d\r\n%s", keys[0], value, strings.Repeat("x", value))))
		after := chunkBytes(t, server)
		assert.Equal(t, after-before, memcached.ChunkOf(value), "%d bytes", value)
		before = after
	}
	assert.EqualValues(t, 1<<20, memcached.ChunkOf(600_000), "beyond the largest it is several")
	assert.Len(t, memcache.Keys("c", []uint64{0})[0], memcached.KeyBytes)
}

// A state is of as many numbers as its item has.
func TestItemsOfStates(t *testing.T) {
	for i, want := range []int{3 * 8, 24, 16, 16, 8, 3 * 8} {
		way := references(2)[i]
		a := made(t, way, limit{100, 60 * second})
		n, _ := a.items("f")
		assert.Zero(t, n, way.name)
		for _, cost := range []int64{1, 2} {
			decide(t, a, "f", moment{opening.UnixNano(), cost})
		}
		n, value := a.items("f")
		assert.Equal(t, []int{1, want}, []int{n, value}, way.name)
	}
}

// A real Memcached takes as many bytes for counterd's counters as their rows have.
func TestBytesAreMemcacheds(t *testing.T) {
	const users = 50
	for _, precision := range []events.Precision{events.Second, events.Minute} {
		server := memcachedtest.Start(t, "-m", "64")
		h := ours(t, events.Limit{N: 20, Window: 10 * time.Minute}, precision)
		fleet, err := memcache.NewFleet(t.Context(), memcache.Config{Servers: []string{server.Addr}, Timeout: time.Minute, Clock: h.clock.now})
		require.NoError(t, err)
		require.NoError(t, h.on(fleet))
		for i := range int64(users * 20) {
			require.True(t, decide(t, h, fmt.Sprint("user-", i%users), moment{opening.UnixNano() + i*599*second/(users*20), 1}))
		}
		want := int64(0)
		for i := range users {
			buckets, value := h.items(fmt.Sprint("user-", i))
			want += int64(buckets) * memcached.ChunkOf(value)
		}
		assert.InDelta(t, want, chunkBytes(t, server), memcached.SmallestChunk, "the instance marker is an item, too")
		require.NoError(t, fleet.Close())
	}
}
