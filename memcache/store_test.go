package memcache_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
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

// untilAdmitted makes a call until the breakers of its servers admit it, and returns the error
// of the call. A look at a server that is restarted may have opened its breaker.
func untilAdmitted(t *testing.T, call func() error) (err error) {
	t.Helper()
	require.Eventually(t, func() bool {
		err = call()
		return !errors.Is(err, memcache.ErrDown)
	}, maxWait, time.Millisecond)
	return err
}

// untilInTime makes a call that has to do part of its work before its timeout, with a longer
// timeout each time until the machine is quick enough for that.
func untilInTime(t *testing.T, timeout time.Duration, call func(timeout time.Duration) (inTime bool)) {
	t.Helper()
	for !call(timeout) {
		require.Less(t, timeout, maxWait, "it is not in time")
		timeout *= 4
	}
}

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
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		server := memcachedtest.Start(t)
		fleet := openUnwatched(t, memcache.Config{Servers: []string{server.Addr}, Protocol: protocol}) // without a marker there
		names := []string{"secret", "secret 2\r\nflush_all\r\n", strings.Repeat("x", 1200), "\x00\x01", "naïve ✓", ""}
		for i, name := range names {
			add(t, fleet, name, int64(i+1), 1, 1<<40-1)
		}
		for i, name := range names {
			assert.Equal(t, []int64{int64(i + 1)}, read(t, fleet, name, 1))
		}
		wellFormed := regexp.MustCompile(`^key=[A-Za-z0-9%_-]{28,32} `)
		var lines []string
		require.Eventually(t, func() bool { // the crawler leaves out what is being moved about
			lines = server.Ask("lru_crawler metadump all")
			return len(lines) == 2*len(names)
		}, maxWait, 20*time.Millisecond)
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

// On the wire the reads of a trip go to one server, on the classic path as one command: that server reads their bytes and
// the others nothing.
func TestReadsGoToOneServer(t *testing.T) {
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		servers := []*memcachedtest.Server{memcachedtest.Start(t), memcachedtest.Start(t), memcachedtest.Start(t)}
		fleet := openUnwatched(t, memcache.Config{Servers: []string{servers[0].Addr, servers[1].Addr, servers[2].Addr}, Protocol: protocol})
		buckets := make([]uint64, 142)
		for i := range buckets {
			buckets[i] = uint64(i)
		}
		for _, counter := range []string{"a", "b", "c", "d", "e"} {
			read(t, fleet, counter, 0) // connects
			var before []map[string]string
			for _, server := range servers {
				before = append(before, server.Stats(""))
			}
			read(t, fleet, counter, buckets...)
			home := fleet.Server(counter)
			for i, server := range servers {
				after := server.Stats("")
				gets, bytes := grown(t, before[i], after, "cmd_get"), grown(t, before[i], after, "bytes_read")
				bytes -= len("stats\r\n") // the question itself
				if server.Addr != home {
					assert.Zero(t, gets)
					assert.Zero(t, bytes)
					continue
				}
				assert.Equal(t, 142, gets)
				asked := len("get") + 142*len(" ") + 142*28 + len("\r\n")
				if protocol == memcache.Meta {
					asked = len("md counterd:none Oabc\r\n") + 142*(len("mg ")+28+len(" v f Oabc\r\n"))
				}
				assert.Equal(t, asked, bytes)
			}
		}
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

// Through the engine: what a day's counter, the longest, and one of ten
// seconds write.
func TestTimesToLiveOfCounters(t *testing.T) {
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		server := memcachedtest.Start(t)
		fleet := openFleetOf(t, protocol, server.Addr)
		counters := hierarchy.NewCounters(hierarchy.Config{Store: fleet})
		for _, retention := range []time.Duration{10 * time.Second, 24 * time.Hour, events.MaxRetention} {
			counter := eventCounter(t, retention)
			at, err := counters.Increment(t.Context(), 1, time.Time{}, counter)
			require.NoError(t, err)
			for bucket := range hierarchy.BucketsOf(counter, at.Unix()) {
				left := timeToLive(t, server, memcache.Keys(counter.ID(), []uint64{bucket.ID()})[0])
				now := time.Now().Unix()
				expires := bucket.Expires(retention, hierarchy.DefaultGrace)
				assert.InDelta(t, expires-now, left, 3, "%s of %s", bucket.Level, retention)
			}
		}
	})
}

// A rollback begins with the last of the buckets: what is in one is in those before it.
func TestTheLastAddIsRolledBackFirst(t *testing.T) {
	server := memcachedtest.Start(t)
	for name, fleet := range map[string]*memcache.Fleet{
		"one replica":  openFleetOf(t, memcache.Classic, server.Addr),
		"two replicas": openReplicas(t, 2, memcache.Classic, server.Addr, memcachedtest.Start(t).Addr),
	} {
		t.Run(name, func(t *testing.T) {
			buckets := []uint64{1, 2, 3}
			landed := landedOf(t, fleet, name, 5, buckets...)
			for _, server := range fleet.Servers(name) {
				conn, err := net.Dial("tcp", server)
				require.NoError(t, err)
				_, err = fmt.Fprintf(conn, "set %s 0 0 3\r\nabc\r\n", memcache.Keys(name, buckets)[1])
				require.NoError(t, err)
				_, err = bufio.NewReader(conn).ReadString('\n')
				require.NoError(t, err)
				require.NoError(t, conn.Close())
			}
			require.Error(t, storetest.RollBack(t.Context(), fleet, name, 5, buckets, landed), "the second is no number")
			require.Equal(t, []int64{5}, read(t, fleet, name, 1))
			require.Equal(t, []int64{0}, read(t, fleet, name, 3))
		})
	}
}
