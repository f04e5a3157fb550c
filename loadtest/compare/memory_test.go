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
	"github.com/counterd/counterd/internal/eventlog"
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
func TestBytesOfStates(t *testing.T) {
	for i, want := range []int{3 * 8, 24, 16, 16, 8, 3 * 8} {
		way := references(2)[i]
		a := made(t, way, limit{100, 60 * second})
		assert.Zero(t, a.bytes("f"), way.name)
		for _, cost := range []int64{1, 2} {
			decide(t, a, "f", moment{opening.UnixNano(), cost})
		}
		assert.Equal(t, memcached.ChunkOf(want), a.bytes("f"), way.name)
	}
}

// A real Memcached takes as many bytes for counterd's counters as their rows have, at the most: a log is
// rewritten now and then.
func TestBytesAreMemcacheds(t *testing.T) {
	ten := events.Limit{N: 300, Window: 10 * time.Minute}
	logged := ten
	logged.Algorithm = eventlog.Algorithm
	for _, c := range []struct {
		limit       events.Limit
		precision   events.Precision
		users, hits int64 // of each
		within      int64 // seconds
	}{
		{ten, events.Second, 50, 20, 599}, {ten, events.Minute, 50, 20, 599},
		{logged, events.Second, 1, 20, 599}, {logged, events.Second, 1, 300, 599}, {logged, events.Second, 1, 400, 2400},
	} {
		server := memcachedtest.Start(t, "-m", "64")
		h := ours(t, c.limit, c.precision)
		fleet, err := memcache.NewFleet(t.Context(), memcache.Config{Servers: []string{server.Addr}, Timeout: time.Minute, Clock: h.clock.now})
		require.NoError(t, err)
		require.NoError(t, fleet.Ping(t.Context())[server.Addr])
		require.NoError(t, h.on(fleet))
		most := int64(0)
		for i := range c.users * c.hits {
			require.True(t, decide(t, h, fmt.Sprint("user-", i%c.users), moment{opening.UnixNano() + i*c.within*second/(c.users*c.hits), 1}))
			if c.users == 1 || i == c.users*c.hits-1 {
				most = max(most, chunkBytes(t, server))
			}
		}
		want := memcached.ChunkOf(1<<10) + memcached.SmallestChunk // the instance marker, and the count of looks
		for i := range c.users {
			want += h.bytes(fmt.Sprint("user-", i))
		}
		assert.Equal(t, want, most, "%+v", c)
		require.NoError(t, fleet.Close())
	}
}
