package memcache_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/internal/replica/repair"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

func TestMain(m *testing.M) {
	leaktest.SideBySide(8)
	goleak.VerifyTestMain(m)
}

// A repairer can repair the replicas of a fleet.
var _ repair.Replicas = (*memcache.Fleet)(nil)

const (
	// maxWait is the timeout of trips where it is not what is tested.
	maxWait = time.Minute
	// slowTimeout is the timeout of trips where it passes, and other trips have to be in time
	// on a busy machine.
	slowTimeout = 4 * time.Second
)

func openFleet(tb testing.TB, servers ...string) *memcache.Fleet {
	tb.Helper()
	return openFleetOf(tb, memcache.Auto, servers...)
}

func openFleetOf(tb testing.TB, protocol memcache.Protocol, servers ...string) *memcache.Fleet {
	tb.Helper()
	return openReplicas(tb, 1, protocol, servers...)
}

func openReplicas(tb testing.TB, replicas int, protocol memcache.Protocol, servers ...string) *memcache.Fleet {
	tb.Helper()
	return openConfig(tb, memcache.Config{Servers: servers, Replicas: replicas, Protocol: protocol})
}

// later is an expiry that no test lives to see.
func later() int64 { return time.Now().Add(time.Hour).Unix() }

// onBothProtocols runs a test of what fleets do alike whatever they speak.
func onBothProtocols(t *testing.T, test func(t *testing.T, protocol memcache.Protocol)) {
	for _, protocol := range []memcache.Protocol{memcache.Meta, memcache.Classic} {
		t.Run(protocol.String(), func(t *testing.T) { test(t, protocol) })
	}
}

// add adds to buckets and returns what they hold then.
func add(tb testing.TB, kept store.Store, counter string, by int64, buckets ...uint64) []int64 {
	tb.Helper()
	values, _ := addOf(tb, kept, counter, by, buckets...)
	return values
}

// landedOf adds to buckets and returns what landed.
func landedOf(tb testing.TB, kept store.Store, counter string, by int64, buckets ...uint64) store.Receipt {
	tb.Helper()
	_, landed := addOf(tb, kept, counter, by, buckets...)
	return landed
}

func addOf(tb testing.TB, kept store.Store, counter string, by int64, buckets ...uint64) ([]int64, store.Receipt) {
	tb.Helper()
	expires := make([]int64, len(buckets))
	for i := range expires {
		expires[i] = later()
	}
	values := make([]int64, len(buckets))
	landed, err := storetest.Trip(tb.Context(), kept, counter, by, buckets, expires, nil, values)
	require.NoError(tb, err)
	require.False(tb, landed.None())
	return values, landed
}

func read(tb testing.TB, kept store.Store, counter string, buckets ...uint64) []int64 {
	tb.Helper()
	values := make([]int64, len(buckets))
	for i := range values {
		values[i] = -1 // what is not set would show
	}
	_, err := storetest.Trip(tb.Context(), kept, counter, 0, nil, nil, buckets, values)
	require.NoError(tb, err)
	return values
}

func TestKeysSayNothing(t *testing.T) {
	inBubbles(t, func(t *testing.T, protocol memcache.Protocol) {
		server := memcachedtest.StartMemory(t)
		fleet := openUnwatched(t, memcache.Config{Servers: []string{server.Addr}, Protocol: protocol}) // without a marker there
		names := []string{"secret", "secret 2\r\nflush_all\r\n", strings.Repeat("x", 1200), "\x00\x01", "naïve ✓", ""}
		for i, name := range names {
			add(t, fleet, name, int64(i+1), 1, 1<<40-1)
		}
		for i, name := range names {
			assert.Equal(t, []int64{int64(i + 1)}, read(t, fleet, name, 1))
		}
		wellFormed := regexp.MustCompile(`^key=[A-Za-z0-9%_-]{28,32} `)
		lines := server.Ask("lru_crawler metadump all")
		assert.Len(t, lines, 2*len(names))
		for _, line := range lines {
			assert.Regexp(t, wellFormed, line)
			assert.NotContains(t, line, "secret")
		}
		for _, key := range memcache.Keys("secret", []uint64{0, 1, 1<<40 - 1}) {
			assert.Len(t, key, 28)
		}
	})
}

func TestItemsFitTheSmallestChunk(t *testing.T) {
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		server := memcachedtest.Start(t)
		fleet := openUnwatched(t, memcache.Config{Servers: []string{server.Addr}, Protocol: protocol}) // without a marker there
		add(t, fleet, "a", 999_999, 1)
		for range 999 {
			add(t, fleet, "a", 1_000_000, 1)
		}
		require.Equal(t, []int64{999_999_999}, read(t, fleet, "a", 1))
		stats := server.Stats("slabs")
		assert.Equal(t, "96", stats["1:chunk_size"])
		assert.Equal(t, "1", stats["active_slabs"], "an item of nine digits needs no larger chunk: %v", stats)
	})
}

func grown(t *testing.T, before, after map[string]string, name string) int {
	t.Helper()
	a, err := strconv.Atoi(before[name])
	require.NoError(t, err)
	b, err := strconv.Atoi(after[name])
	require.NoError(t, err)
	return b - a
}

// Memcached's own word on how long items live, up to 30 days and beyond, where
// the time given has to be an absolute one.
func TestTimesToLive(t *testing.T) {
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		server := memcachedtest.Start(t)
		fleet := openFleetOf(t, protocol, server.Addr)
		const day = 24 * 60 * 60
		for i, life := range []int64{1, 2, 60, day, 30*day - 1, 30 * day, 30*day + 1, 31*day + 3, 61 * day} {
			now := time.Now().Unix()
			_, err := storetest.Trip(t.Context(), fleet, "a", 1, []uint64{uint64(i)}, []int64{now + life}, nil, make([]int64, 1))
			require.NoError(t, err)
			left := timeToLive(t, server, memcache.Keys("a", []uint64{uint64(i)})[0])
			slack := time.Now().Unix() - now + 1
			assert.LessOrEqual(t, left, life+1, "asked for %d", life) // its clock may be a tick behind
			assert.GreaterOrEqual(t, left, life-slack, "asked for %d", life)
		}
		for i, expires := range []int64{0, -1, time.Now().Unix(), time.Now().Unix() - 100} {
			_, err := storetest.Trip(t.Context(), fleet, "b", 1, []uint64{uint64(i)}, []int64{expires}, nil, make([]int64, 1))
			require.NoError(t, err)
			left := timeToLive(t, server, memcache.Keys("b", []uint64{uint64(i)})[0])
			assert.LessOrEqual(t, left, int64(2), "what should be gone already lives a second, not for ever")
		}
	})
}

// timeToLive returns what the server says: -1 is for ever. What has expired has 0.
func timeToLive(t *testing.T, server *memcachedtest.Server, key string) int64 {
	t.Helper()
	answer := server.Ask("mg " + key + " t")
	if answer[0] == "EN" {
		return 0
	}
	var left int64
	_, err := fmt.Sscanf(answer[0], "HD t%d", &left)
	require.NoError(t, err, "%q", answer)
	require.NotEqual(t, int64(-1), left, "the item never expires")
	return left
}
