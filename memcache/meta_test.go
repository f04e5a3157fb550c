package memcache_test

import (
	"context"
	"fmt"
	"github.com/counterd/counterd/internal/testkit"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// doTogether adds one to an item of each of the counters, all at once.
func doTogether(ctx context.Context, fleet *memcache.Fleet, counters ...string) (ops []*store.Op) {
	for _, counter := range counters {
		ops = append(ops, storetest.Op(counter, 1, []uint64{1}, []int64{later()}, []uint64{2}))
	}
	fleet.Do(ctx, ops...)
	return ops
}

// tripOf adds one to buckets 1 to adds and reads as many from 101 on.
func tripOf(ctx context.Context, fleet *memcache.Fleet, adds, reads int) (landed store.Receipt, values []int64, err error) {
	var add, read []uint64
	var expires []int64
	for i := range adds {
		add, expires = append(add, uint64(i+1)), append(expires, later())
	}
	for i := range reads {
		read = append(read, uint64(i+101))
	}
	values = make([]int64, adds+reads)
	landed, err = storetest.Trip(ctx, fleet, "a", 1, add, expires, read, values)
	return landed, values, err
}

// An add in the middle fails: the adds before it count, and the adds after it are rolled
// back. The connection goes on.
func TestAnAddThatFailsInTheMiddle(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, fault := range []string{"SERVER_ERROR out of memory", "SERVER_ERROR", "CLIENT_ERROR no", "NS", "EX"} {
			var backs []string
			var commands, connections atomic.Int32
			addr := fakeMeta(t, func(conn int, line string) (string, bool) {
				connections.Store(int32(conn))
				if strings.Contains(line, " MD ") {
					backs = append(backs, strings.Fields(line)[1])
				} else if commands.Add(1) == 2 {
					if len(fault) == 2 {
						return fault + tagOf(line) + "\r\n", true
					}
					return fault + "\r\n", true
				}
				return sound(line, 7), true
			})
			fleet := openUnwatched(t, memcache.Config{Servers: []string{addr}})
			landed, values, err := tripOf(t.Context(), fleet, 4, 1)
			require.ErrorContains(t, err, fault)
			require.ErrorContains(t, err, addr)
			assert.Equal(t, 1, landed.On(0))
			assert.Equal(t, int64(7), values[0])
			assert.Equal(t, memcache.Keys("a", []uint64{4, 3}), backs, fault)

			landed, values, err = tripOf(t.Context(), fleet, 2, 1)
			require.NoError(t, err)
			assert.Equal(t, 2, landed.On(0))
			assert.Equal(t, []int64{7, 7, 7}, values)
			assert.Zero(t, connections.Load(), "the connection goes on")
		}
	})
}

func TestAMemcachedThatIsFull(t *testing.T) {
	server := memcachedtest.Start(t, "-m", "3", "-M")
	fleet := openFleetOf(t, memcache.Meta, server.Addr)
	buckets, expires := make([]uint64, 100), make([]int64, 100)
	for i := range expires {
		expires[i] = later()
	}
	values := make([]int64, 101)
	for round := range 10_000 {
		for i := range buckets {
			buckets[i] = uint64(round*100 + i)
		}
		landed, err := storetest.Trip(t.Context(), fleet, "a", 1, buckets, expires, []uint64{0}, values)
		if err == nil {
			continue
		}
		require.ErrorContains(t, err, "SERVER_ERROR")
		for i := range landed.On(0) {
			require.Equal(t, int64(1), values[i])
		}
		require.Equal(t, []int64{1}, read(t, fleet, "a", 0), "it goes on")
		return
	}
	t.Fatal("it never is full")
}

// A caller whose deadline passes leaves; the others on the same connection get their
// answers, and so does the next caller.
func TestAShortDeadlineIsOnesOwn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		first, second := make(chan struct{}), make(chan struct{})
		var gets, connections atomic.Int32
		addr := fakeMeta(t, func(conn int, line string) (string, bool) {
			connections.Store(int32(conn))
			if strings.HasPrefix(line, "mg ") {
				switch gets.Add(1) {
				case 1:
					<-first // two more gather meanwhile
				case 2:
					<-second // they are on the wire
				}
			}
			return sound(line, 7), true
		})
		fleet := openUnwatched(t, memcache.Config{Servers: []string{addr}, Conns: 1})
		var running sync.WaitGroup
		trip := func(ctx context.Context) {
			_, values, err := tripOf(ctx, fleet, 1, 1)
			assert.NoError(t, err)
			assert.Equal(t, []int64{7, 7}, values)
		}
		running.Go(func() { trip(context.Background()) })
		testkit.Await(t, maxWait, "the first trip is sent", func() bool { return gets.Load() == 1 })
		running.Go(func() { trip(context.Background()) })
		testkit.Await(t, maxWait, "two trips wait", func() bool { return fleet.Waiting() == 2 })
		left := make(chan struct{})
		running.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), slowTimeout)
			defer cancel()
			_, _, err := tripOf(ctx, fleet, 1, 1)
			assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
			close(left)
		})
		testkit.Await(t, maxWait, "three trips wait", func() bool { return fleet.Waiting() == 3 })
		close(first)
		<-left
		close(second)
		running.Wait()
		trip(context.Background())
		assert.Zero(t, connections.Load(), "all on one connection")
	})
}

// What was not written when a connection fails was not sent: it goes on another. What
// was written never is.
func TestWhatWasNotSentGoesOnAnotherConnection(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		cut := make(chan struct{})
		var adds, firstAdds atomic.Int32
		addr := fakeMeta(t, func(conn int, line string) (string, bool) {
			adds.Add(1)
			if conn == 0 {
				firstAdds.Add(1)
				<-cut
				return "", false
			}
			return sound(line, 7), true
		})
		fleet := openUnwatched(t, memcache.Config{Servers: []string{addr}, Conns: 1})
		var running sync.WaitGroup
		running.Go(func() {
			landed, _, err := tripOf(t.Context(), fleet, 1, 0)
			assert.Error(t, err)
			assert.Zero(t, landed)
		})
		testkit.Await(t, maxWait, "the first add is sent", func() bool { return firstAdds.Load() == 1 })
		for range 5 {
			running.Go(func() {
				landed, _, err := tripOf(t.Context(), fleet, 1, 0)
				assert.NoError(t, err)
				assert.Equal(t, 1, landed.On(0))
			})
		}
		testkit.Await(t, maxWait, "six trips wait", func() bool { return fleet.Waiting() == 6 })
		close(cut)
		running.Wait()
		assert.Equal(t, int32(6), adds.Load(), "each add was sent once")
	})
}

// A connection that has answered part of a trip and then fails: the part counts.
func TestAnswersThatCameBeforeTheFailure(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var commands atomic.Int32
		addr := fakeMeta(t, func(_ int, line string) (string, bool) {
			if commands.Add(1) == 3 {
				return "", false
			}
			return sound(line, 7), true
		})
		fleet := openUnwatched(t, memcache.Config{Servers: []string{addr}})
		landed, values, err := tripOf(t.Context(), fleet, 4, 1)
		require.Error(t, err)
		assert.Equal(t, 2, landed.On(0))
		assert.Equal(t, []int64{7, 7}, values[:2])
		assert.Equal(t, int32(3), commands.Load())
	})
}

// What is no answer to the commands sent ends the connection and fails all of its waiting
// calls at once; the next trip has a new connection.
func TestNonsenseEndsTheConnection(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		key := memcache.Keys("a", []uint64{101})[0]
		other := memcache.Keys("b", []uint64{101})[0]
		for _, nonsense := range []string{
			"\n", "\r\n", "x\r\n", "ERROR\r\n", "VA 1 O???\r\n7\r\n", "VA 1\r\n7\r\n", "HD\r\n", "END\r\n", "VA 0 O???\r\n\r\n",
			"VA 99999999999999999999 O???\r\n7\r\n", "VA -1 O???\r\n7\r\n", "VALUE " + key + " 0 1\r\n7\r\nEND\r\n",
			"SERVER_ERROR out of memory writing get response\r\n", strings.Repeat("x", 100_000),
		} {
			for _, inGet := range []bool{false, true} {
				if inGet && (nonsense == "END\r\n" || strings.HasPrefix(nonsense, "VALUE")) {
					continue // just what is asked for there
				}
				testNonsense(t, nonsense, inGet)
			}
		}
		for _, nonsense := range []string{
			"VALUE " + key + " 0 1\r\n7\r\nEND\r\n", "END\r\n", "HD\r\n",
			"VA 1 f0 O???\r\n7\r\n", "VA 1 f0\r\n7\r\n", "VA 1 f0 O\r\n7\r\n", "VA x f0 O???\r\n7\r\n", "VA 1\r\n7\r\n", "EN O???\r\n", "EN " + other + "\r\n",
			"VA 1 f0 TAG\r\n77\r\n", "VA 1 f0 TAG\r\n7xyEND\r\n", "VA 1 fx TAG\r\n7\r\n", "VA f0 TAG\r\n7\r\n", "VA 1 f0 TAG 5\r\n7xy", "VA 1 TAG\r\n7\r\n",
		} {
			testNonsense(t, nonsense, true)
		}
	})
}

func testNonsense(t *testing.T, nonsense string, inGet bool) {
	t.Helper()
	addr := fakeMeta(t, func(conn int, line string) (string, bool) {
		if conn == 0 && strings.HasPrefix(line, "mg ") == inGet {
			return strings.ReplaceAll(nonsense, " TAG", tagOf(line)), true
		}
		return sound(line, 7), true
	})
	fleet := openUnwatched(t, memcache.Config{Servers: []string{addr}})
	bounded(t, nonsense, func() {
		_, _, err := tripOf(t.Context(), fleet, 1, 1)
		assert.Error(t, err, "%.100q", nonsense)
		assert.NotErrorIs(t, err, os.ErrDeadlineExceeded, "%.100q", nonsense)
		assert.Less(t, len(fmt.Sprint(err)), 300)
		for _, counter := range []string{"a", "b"} {
			assert.NotContains(t, fmt.Sprint(err), memcache.Keys(counter, []uint64{101})[0][:6], "%.100q", nonsense)
		}
		_, values, err := tripOf(t.Context(), fleet, 1, 1)
		assert.NoError(t, err, "%.100q", nonsense)
		assert.Equal(t, []int64{7, 7}, values)
	})
}

// Memcached that runs out of memory in a get drops the answers ahead of it that it has
// not sent yet. What comes behind is not taken for what was dropped.
func TestDroppedAnswersAreNobodyElses(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		var gets atomic.Int32
		addr := fakeMeta(t, func(conn int, line string) (string, bool) {
			if conn > 0 {
				return sound(line, 7), true
			}
			if strings.HasPrefix(line, "mg ") {
				switch gets.Add(1) {
				case 1:
					<-hold
					return sound(line, 7), true
				case 2:
					return "", true // dropped, and its fence before it
				}
				return "EN\r\n", true
			}
			if gets.Load() == 1 {
				return "", true
			}
			return sound(line, 7), true
		})
		fleet := openUnwatched(t, memcache.Config{Servers: []string{addr}, Conns: 1})
		var running sync.WaitGroup
		trip := func() {
			_, values, err := tripOf(t.Context(), fleet, 0, 1)
			if err == nil {
				assert.Equal(t, []int64{7}, values)
			}
		}
		running.Go(trip)
		testkit.Await(t, maxWait, "the first trip is sent", func() bool { return gets.Load() == 1 })
		for range 2 {
			running.Go(trip)
		}
		testkit.Await(t, maxWait, "three trips wait", func() bool { return fleet.Waiting() == 3 })
		close(hold)
		bounded(t, "a trip", running.Wait)
	})
}

// A connection on which there was no answer for the fleet's timeout is given up: the next
// trip has another one, at once.
func TestASilentConnectionIsGivenUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		addr := fakeMeta(t, func(conn int, line string) (string, bool) {
			if conn == 0 {
				return "", true
			}
			return sound(line, 7), true
		})
		fleet := openUnwatched(t, memcache.Config{Servers: []string{addr}, Timeout: slowTimeout})
		_, _, err := tripOf(t.Context(), fleet, 1, 1)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		_, values, err := tripOf(t.Context(), fleet, 1, 1)
		require.NoError(t, err)
		require.Equal(t, []int64{7, 7}, values)
	})
}

// An unsolicited answer ends a connection that is idle.
func TestAnswersNobodyAskedFor(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var connections atomic.Int32
		addr := fakeMeta(t, func(conn int, line string) (string, bool) {
			connections.Store(int32(conn))
			if strings.HasPrefix(line, "mg ") && conn == 0 {
				return "EN\r\nEN\r\n", true
			}
			return sound(line, 7), true
		})
		fleet := openUnwatched(t, memcache.Config{Servers: []string{addr}, Conns: 1})
		_, _, err := tripOf(t.Context(), fleet, 0, 1)
		require.NoError(t, err)
		testkit.Await(t, maxWait, "a trip that is answered", func() bool {
			_, values, err := tripOf(t.Context(), fleet, 0, 1)
			return err == nil && values[0] == 7
		})
		assert.Equal(t, int32(1), connections.Load())
	})
}

// doneless is a context whose Done must not be called.
type doneless struct{ context.Context }

func (doneless) Done() <-chan struct{} { panic("asked for Done") }

func TestACancellationDoesNotCutAMetaTripShort(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		addr := fakeMeta(t, func(_ int, line string) (string, bool) {
			cancel()
			return sound(line, 7), true
		})
		fleet := openUnwatched(t, memcache.Config{Servers: []string{addr}})
		landed, _, err := tripOf(doneless{ctx}, fleet, 3, 1)
		require.NoError(t, err)
		assert.Equal(t, 3, landed.On(0))
		_, _, err = tripOf(doneless{ctx}, fleet, 3, 1)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// Close waits for the trip under way, and calls meanwhile get ErrClosed.
func TestCloseWaitsForMetaTrips(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release, entered := make(chan struct{}), make(chan struct{}, 8)
		addr := fakeMeta(t, func(_ int, line string) (string, bool) {
			entered <- struct{}{}
			<-release
			return sound(line, 7), true
		})
		fleet := openUnwatched(t, memcache.Config{Servers: []string{addr}, Conns: 1})
		var running sync.WaitGroup
		for range 2 { // one on the wire, one behind it
			running.Go(func() {
				_, _, err := tripOf(t.Context(), fleet, 1, 0)
				assert.NoError(t, err)
			})
		}
		<-entered
		testkit.Await(t, maxWait, "two trips wait", func() bool { return fleet.Waiting() == 2 })
		closed := make(chan error, 1)
		go func() { closed <- fleet.Close() }()
		select {
		case <-closed:
			t.Error("Close did not wait for the trips under way")
		case <-time.After(50 * time.Millisecond):
		}
		_, _, err := tripOf(t.Context(), fleet, 1, 0)
		require.ErrorIs(t, err, memcache.ErrClosed)
		close(release)
		require.NoError(t, <-closed)
		running.Wait()
	})
}

// A server that hangs while a connection is opened delays no caller beyond its deadline,
// and does not delay Close.
func TestCloseDuringAnAttemptToConnect(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		addr := memcachedtest.Serve(t, func(_ int, conn net.Conn) { conn.Read(make([]byte, 1)); time.Sleep(200 * time.Millisecond) })
		fleet := openUnwatched(t, memcache.Config{Servers: []string{addr}})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, _, err := tripOf(ctx, fleet, 1, 0)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		bounded(t, "Close", func() { assert.NoError(t, fleet.Close()) })
	})
}
