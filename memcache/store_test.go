package memcache_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	"github.com/counterd/counterd/internal/testkit"
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
	leaktest.Check(tb)
	fleet, err := memcache.NewFleet(context.Background(), memcache.Config{Servers: servers, Replicas: replicas, Protocol: protocol, Timeout: maxWait})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, fleet.Close()) })
	return fleet
}

// onEveryStore is the battery's list of stores.
func onEveryStore(t *testing.T, test func(t *testing.T, kept store.Store)) {
	t.Run("embedded", func(t *testing.T) {
		test(t, memcache.NewEmbedded(memcache.EmbeddedConfig{}))
	})
	t.Run("one server", func(t *testing.T) {
		test(t, openFleet(t, memcachedtest.Start(t).Addr))
	})
	t.Run("meta", func(t *testing.T) {
		test(t, openFleetOf(t, memcache.Meta, memcachedtest.Start(t).Addr))
	})
	t.Run("classic", func(t *testing.T) {
		test(t, openFleetOf(t, memcache.Classic, memcachedtest.Start(t).Addr))
	})
	t.Run("three servers", func(t *testing.T) {
		test(t, openFleet(t, memcachedtest.StartMany(t, 3)...))
	})
	t.Run("unix socket", func(t *testing.T) {
		test(t, openFleet(t, memcachedtest.StartUnix(t).Addr))
	})
	t.Run("classic unix socket", func(t *testing.T) {
		test(t, openFleetOf(t, memcache.Classic, memcachedtest.StartUnix(t).Addr))
	})
	t.Run("two replicas", func(t *testing.T) {
		test(t, openReplicas(t, 2, memcache.Meta, memcachedtest.StartMany(t, 3)...))
	})
	t.Run("two replicas, auto", func(t *testing.T) {
		test(t, openReplicas(t, 2, memcache.Auto, memcachedtest.StartMany(t, 3)...))
	})
	t.Run("three replicas, classic", func(t *testing.T) {
		test(t, openReplicas(t, 3, memcache.Classic, memcachedtest.StartMany(t, 3)...))
	})
	t.Run("more replicas than servers", func(t *testing.T) {
		test(t, openReplicas(t, 3, memcache.Meta, memcachedtest.StartMany(t, 1)...))
	})
	t.Run("two replicas, together", func(t *testing.T) {
		test(t, togetherStore{openReplicas(t, 2, memcache.Meta, memcachedtest.StartMany(t, 2)...)})
	})
	t.Run("key secret", func(t *testing.T) {
		test(t, openConfig(t, memcache.Config{Servers: memcachedtest.StartMany(t, 3), KeySecret: aSecret}))
	})
	t.Run("key secret, two replicas, classic", func(t *testing.T) {
		test(t, openConfig(t, memcache.Config{Servers: memcachedtest.StartMany(t, 2), KeySecret: aSecret, Replicas: 2, Protocol: memcache.Classic}))
	})
	for _, protocol := range []memcache.Protocol{memcache.Meta, memcache.Classic} {
		for name, demands := range securities(t) {
			if name == "plain" {
				continue
			}
			t.Run(protocol.String()+", "+name, func(t *testing.T) {
				test(t, openConfig(t, secured(t, demands, memcache.Config{Servers: []string{startServer(t, demands).Addr}, Protocol: protocol})))
			})
		}
	}
	t.Run("embedded, together", func(t *testing.T) {
		test(t, togetherStore{memcache.NewEmbedded(memcache.EmbeddedConfig{})})
	})
	t.Run("meta, together", func(t *testing.T) {
		test(t, togetherStore{openFleetOf(t, memcache.Meta, memcachedtest.Start(t).Addr)})
	})
	t.Run("classic, together", func(t *testing.T) {
		test(t, togetherStore{openFleetOf(t, memcache.Classic, memcachedtest.Start(t).Addr)})
	})
}

// togetherStore makes each round trip together with another one.
type togetherStore struct{ store.Store }

func (s togetherStore) Do(ctx context.Context, ops ...*store.Op) {
	s.Store.Do(ctx, append(ops, &store.Op{Counter: "company", Reads: []store.Read{{Item: 1}}})...)
}

// One caller may have many trips under way, more than there are connections.
func TestManyTripsOfOneCaller(t *testing.T) {
	onEveryStore(t, func(t *testing.T, kept store.Store) {
		const trips, rounds = 300, 3
		for round := range int64(rounds) {
			ops := make([]*store.Op, trips)
			for i := range ops {
				ops[i] = storetest.Op(fmt.Sprintf("counter %d", i), int64(i), []uint64{1}, []int64{later()}, []uint64{2})
			}
			kept.Do(t.Context(), ops...)
			for i, op := range ops {
				require.NoError(t, op.Err)
				require.False(t, op.Receipt.None())
				require.Equal(t, int64(i)*(round+1), op.Writes[0].Result)
				require.Zero(t, op.Reads[0].Value)
			}
			for _, op := range ops {
				op.RollBack(op.Counter, op.Writes, op.Receipt, 0)
			}
			kept.Do(t.Context(), ops...)
			for _, op := range ops {
				require.NoError(t, op.Err)
			}
		}
	})
}

// Trips that begin without time fail, each of them.
func TestTripsThatBeginTooLate(t *testing.T) {
	onEveryStore(t, func(t *testing.T, kept store.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		ops := []*store.Op{storetest.Op("counter", 1, []uint64{1}, []int64{later()}, nil), storetest.Op("other", 1, []uint64{1}, []int64{later()}, nil)}
		kept.Do(ctx, ops...)
		for _, op := range ops {
			assert.True(t, op.Receipt.None())
			assert.ErrorIs(t, op.Err, context.Canceled)
			assert.Equal(t, []int64{0}, read(t, kept, op.Counter, 1))
		}
	})
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

func TestTripsAddAndRead(t *testing.T) {
	onEveryStore(t, func(t *testing.T, kept store.Store) {
		assert.Equal(t, []int64{0, 0}, read(t, kept, "a", 1, 2), "what is not there is zero")
		assert.Equal(t, []int64{3, 3}, add(t, kept, "a", 3, 1, 2))
		assert.Equal(t, []int64{5}, add(t, kept, "a", 2, 2))
		assert.Equal(t, []int64{5, 0, 3}, read(t, kept, "a", 2, 3, 1))
		assert.Equal(t, []int64{0}, read(t, kept, "b", 1), "counters are apart")

		values := make([]int64, 3)
		landed, err := storetest.Trip(t.Context(), kept, "a", 10, []uint64{1}, []int64{later()}, []uint64{2, 1}, values)
		require.NoError(t, err)
		assert.NotZero(t, landed)
		assert.Equal(t, []int64{13, 5, 13}, values, "the reads see the adds")
	})
}

func TestDelete(t *testing.T) {
	onEveryStore(t, func(t *testing.T, kept store.Store) {
		add(t, kept, "a", 1, 1, 2, 3)
		add(t, kept, "b", 1, 1)
		require.NoError(t, storetest.Delete(t.Context(), kept, "a", []uint64{1, 3, 4}))
		assert.Equal(t, []int64{0, 1, 0, 0}, read(t, kept, "a", 1, 2, 3, 4))
		assert.Equal(t, []int64{1}, read(t, kept, "b", 1))
		require.NoError(t, storetest.Delete(t.Context(), kept, "never seen", []uint64{1}))
	})
}

func TestTakeBack(t *testing.T) {
	onEveryStore(t, func(t *testing.T, kept store.Store) {
		add(t, kept, "a", 9, 1, 2)
		landed := landedOf(t, kept, "a", 91, 1, 3)
		require.NoError(t, storetest.Delete(t.Context(), kept, "a", []uint64{3}))
		require.NoError(t, storetest.RollBack(t.Context(), kept, "a", 91, []uint64{1, 3}, landed))
		assert.Equal(t, []int64{9, 9, 0}, read(t, kept, "a", 1, 2, 3), "nothing is created")
		landed = landedOf(t, kept, "a", 1, 1)
		require.NoError(t, storetest.RollBack(t.Context(), kept, "a", 11, []uint64{1}, landed))
		assert.Equal(t, []int64{0}, read(t, kept, "a", 1), "nothing goes below zero")
		assert.Equal(t, []int64{2}, add(t, kept, "a", 2, 3))
		require.NoError(t, storetest.RollBack(t.Context(), kept, "a", 1, []uint64{3}, store.Acknowledged(0)))
		assert.Equal(t, []int64{2}, read(t, kept, "a", 3), "nothing landed")
	})
}

func TestManyReadsInOneTrip(t *testing.T) {
	onEveryStore(t, func(t *testing.T, kept store.Store) {
		buckets := make([]uint64, 1000)
		want := make([]int64, len(buckets))
		for i := range buckets {
			buckets[i] = uint64(i) << 20
			if i%7 == 0 {
				want[i] = int64(i + 1)
				add(t, kept, "a", want[i], buckets[i])
			}
		}
		assert.Equal(t, want, read(t, kept, "a", buckets...))
	})
}

func TestLargeNumbers(t *testing.T) {
	onEveryStore(t, func(t *testing.T, kept store.Store) {
		const most = 1<<40 - 1
		add(t, kept, "a", 1_000_000, most, 0)
		for range 11 {
			add(t, kept, "a", 1_000_000_000, most)
		}
		assert.Equal(t, []int64{11_001_000_000, 1_000_000}, read(t, kept, "a", most, 0))
	})
}

// copied reports whether the store keeps several copies.
func copied(kept store.Store) bool {
	if together, wrapped := kept.(togetherStore); wrapped {
		kept = together.Store
	}
	fleet, ok := kept.(*memcache.Fleet)
	return ok && len(fleet.Servers("a")) > 1
}

// A bucket that many create at once loses nothing, and gives each a sum of its
// own; where it has several copies no lower one.
func TestRacesToCreateABucket(t *testing.T) {
	onEveryStore(t, func(t *testing.T, kept store.Store) {
		const goroutines = 64
		rounds := testkit.Fifth(1000)
		values := make([][goroutines]int64, rounds)
		var running sync.WaitGroup
		for g := range goroutines {
			running.Go(func() {
				value := make([]int64, 1)
				for round := range rounds {
					landed, err := storetest.Trip(t.Context(), kept, "a", 1, []uint64{uint64(round)}, []int64{later()}, nil, value)
					if err != nil || landed.None() {
						t.Errorf("round %d: %v landed: %v", round, landed, err)
						return
					}
					values[round][g] = value[0]
				}
			})
		}
		running.Wait()
		for round := range rounds {
			slices.Sort(values[round][:])
			for i, value := range values[round] {
				own := int64(i) + 1
				require.True(t, value == own || copied(kept) && value > own && value <= goroutines, "round %d: %v", round, values[round])
			}
		}
		require.Equal(t, []int64{goroutines, goroutines}, read(t, kept, "a", 0, uint64(rounds-1)))
	})
}

func TestACanceledContextChangesNothing(t *testing.T) {
	onEveryStore(t, func(t *testing.T, kept store.Store) {
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		landed, err := storetest.Trip(canceled, kept, "a", 1, []uint64{1}, []int64{later()}, nil, make([]int64, 1))
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, landed)
		require.ErrorIs(t, storetest.Delete(canceled, kept, "a", []uint64{1}), context.Canceled)
		require.Equal(t, []int64{0}, read(t, kept, "a", 1))
	})
}

// A bucket expires between the increment that found it and the one after, again
// and again: the adds go on and none fails.
func TestBucketsThatExpireUnderAdds(t *testing.T) {
	onEveryStore(t, func(t *testing.T, kept store.Store) {
		adds := testkit.Fifth(2000)
		value := make([]int64, 1)
		var running sync.WaitGroup
		for range 8 {
			running.Go(func() {
				value := make([]int64, 1)
				for range adds {
					// The least time to live: a second, and often less.
					if _, err := storetest.Trip(t.Context(), kept, "a", 1, []uint64{1}, []int64{time.Now().Unix()}, nil, value); err != nil {
						t.Error(err)
						return
					}
					if value[0] < 1 {
						t.Errorf("an add made it %d", value[0])
					}
				}
			})
		}
		running.Wait()
		_, err := storetest.Trip(t.Context(), kept, "a", 1, []uint64{1}, []int64{0}, nil, value)
		require.NoError(t, err)
		require.Positive(t, value[0])
	})
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
