package memcache_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

func eventCounter(t *testing.T, retention time.Duration) events.Counter {
	t.Helper()
	event := &events.Event{Name: "e", Retention: retention}
	counter, err := event.Counter(events.Features{"user": retention.String()})
	require.NoError(t, err)
	return counter
}

func TestServersAreCheckedAtTheStart(t *testing.T) {
	for name, servers := range map[string][]string{
		"no servers":       {},
		"neither host":     {"localhost"},
		"no valid port":    {"localhost:nowhere"},
		"named twice":      {"127.0.0.1:1", "127.0.0.1:1"},
		"is neither host:": {":11211"},
	} {
		_, err := memcache.NewFleet(t.Context(), memcache.Config{Servers: servers})
		assert.Error(t, err, name)
	}
	_, err := memcache.NewFleet(t.Context(), memcache.Config{Servers: []string{"counterd-test.invalid:1", "b", "b"}})
	require.Error(t, err)
	assert.Len(t, strings.Split(err.Error(), "\n"), 3, "all faults at once: %v", err)

	// One that is down is no fault, nor is one whose name has no address yet.
	fleet, err := memcache.NewFleet(t.Context(), memcache.Config{Servers: []string{"127.0.0.1:1", "/nowhere/socket", "counterd-test.invalid:1"}})
	require.NoError(t, err)
	require.NoError(t, fleet.Close())
}

// A server whose name has no address, as that of a pod that waits for a node, is down: it is named, the others decide, and
// it is in use once it has one.
func TestAServerWithoutAnAddress(t *testing.T) {
	for _, replicas := range []int{1, 2} {
		inBubbles(t, func(t *testing.T, protocol memcache.Protocol) {
			const name = "counterd-test.invalid:11211"
			server, pending := memcachedtest.StartMemory(t), memcachedtest.StartMemory(t)
			var found atomic.Bool
			config := memcache.Dialed(memcache.Config{Servers: []string{server.Addr, name}, Replicas: replicas, Protocol: protocol}, func(ctx context.Context, addr string, deadline time.Time) (net.Conn, error) {
				switch {
				case addr != name:
					return memcachedtest.Dial(ctx, addr, deadline)
				case !found.Load():
					return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: addr, IsNotFound: true}}
				}
				return memcachedtest.Dial(ctx, pending.Addr, deadline)
			})
			fleet, err := memcache.NewFleet(t.Context(), config)
			require.NoError(t, err)
			defer fleet.Close()
			require.ErrorContains(t, fleet.Ping(t.Context())[name], "no such host")
			health := func() memcache.ServerHealth { return fleet.Health()[1] }
			require.Equal(t, name, health().Name)
			require.False(t, health().Up)
			require.ErrorContains(t, health().Err, "no such host")
			for i := range 20 {
				counter := fmt.Sprint(i)
				_, err := storetest.Trip(t.Context(), fleet, counter, 1, []uint64{1}, []int64{later()}, nil, make([]int64, 1))
				require.Equal(t, fleet.Servers(counter)[0] == name && replicas == 1, err != nil, "%v", err)
			}
			found.Store(true)
			time.Sleep(2 * time.Second)
			require.True(t, health().Up, "it was looked up again")
		})
	}
}

// All processes must place alike, also those of later versions: these places are
// part of the format.
func TestPlaceIsStable(t *testing.T) {
	fleet, err := memcache.NewFleet(t.Context(), memcache.Config{Servers: []string{"10.0.0.1:11211", "10.0.0.2:11211", "10.0.0.3:11211"}})
	require.NoError(t, err)
	defer fleet.Close()
	for counter, want := range map[string]string{
		"a": "10.0.0.3:11211", "b": "10.0.0.3:11211", "c": "10.0.0.1:11211", "d": "10.0.0.1:11211", "g": "10.0.0.1:11211", "h": "10.0.0.2:11211",
	} {
		assert.Equal(t, want, fleet.Server(counter), counter)
	}
	assert.Equal(t, []string{"ypeBEsobvcr6wjGzmiPc00000001"}, memcache.Keys("a", []uint64{1}))
}

// A caller that leaves under way leaves nothing half done behind.
func TestACancellationDoesNotCutATripShort(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var incremented atomic.Int32
		addr := fakeServer(t, func(line string) (string, bool) {
			incremented.Add(1)
			cancel()
			return "1\r\n", true
		})
		fleet := openConfig(t, memcache.Config{Servers: []string{addr}, Protocol: memcache.Classic, Timeout: maxWait})
		landed, err := storetest.Trip(ctx, fleet, "a", 1, []uint64{1, 2, 3}, []int64{later(), later(), later()}, nil, make([]int64, 3))
		require.NoError(t, err)
		assert.Equal(t, 3, landed.On(0))
		assert.Equal(t, int32(3), incremented.Load())
	})
}

// A trip of many exchanges, each of them in time, ends when its time is over.
func TestATripHasOneDeadline(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		addr := fakeServer(t, func(string) (string, bool) {
			time.Sleep(10 * time.Millisecond)
			return "1\r\n", true
		})
		fleet := openConfig(t, memcache.Config{Servers: []string{addr}, Protocol: memcache.Classic})
		ctx, cancel := context.WithTimeout(t.Context(), 105*time.Millisecond)
		defer cancel()
		landed, err := storetest.Trip(ctx, fleet, "a", 1, make([]uint64, 100), make([]int64, 100), nil, make([]int64, 100))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.Equal(t, 10, landed.On(0))
	})
}

// An add whose answer is lost may have been counted: it is never sent again, and
// those behind it are not sent at all.
func TestALostAnswerIsNotRepeated(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var commands atomic.Int32
		addr := fakeServer(t, func(line string) (string, bool) {
			if commands.Add(1) == 2 {
				return "", false
			}
			return "7\r\n", true
		})
		fleet := openConfig(t, memcache.Config{Servers: []string{addr}, Protocol: memcache.Classic, Timeout: maxWait})
		values := make([]int64, 4)
		landed, err := storetest.Trip(t.Context(), fleet, "a", 1, []uint64{1, 2, 3}, []int64{later(), later(), later()}, []uint64{4}, values)
		require.Error(t, err)
		assert.Equal(t, 1, landed.On(0))
		assert.Equal(t, int64(7), values[0])
		require.NoError(t, fleet.Close())
		assert.Equal(t, int32(2), commands.Load())
	})
}

// Connections that a server closed while they were idle cost no call an error: not after a
// restart, not where idle ones are cut.
func TestConnectionsThatWereCutWhileIdle(t *testing.T) {
	onEveryServer(t, func(t *testing.T, server *memcachedtest.Server, config memcache.Config) {
		fleet := openConfig(t, memcache.Unwatched(config)) // a look meanwhile would find it down
		burst := func() {
			var running sync.WaitGroup
			for range 32 {
				running.Go(func() {
					for range 10 {
						_, err := storetest.Trip(t.Context(), fleet, "a", 1, []uint64{1}, []int64{later()}, []uint64{2}, make([]int64, 2))
						assert.NoError(t, err)
					}
				})
			}
			running.Wait()
		}
		burst()
		server.Stop()
		server.Restart()
		burst()
		require.Equal(t, []int64{320}, read(t, fleet, "a", 1))
	})
}

// Connections are kept: a burst of trips makes as many as run at once, and the
// next burst makes none.
func TestConnectionsAreKept(t *testing.T) {
	onEveryServer(t, func(t *testing.T, server *memcachedtest.Server, config memcache.Config) {
		fleet := openConfig(t, config)
		burst := func() {
			var running sync.WaitGroup
			for range 64 {
				running.Go(func() {
					for range 20 {
						_, err := storetest.Trip(t.Context(), fleet, "a", 1, []uint64{1}, []int64{later()}, nil, make([]int64, 1))
						assert.NoError(t, err)
					}
				})
			}
			running.Wait()
		}
		burst()
		before := server.Stats("")
		burst()
		made := grown(t, before, server.Stats(""), "total_connections") - 1 // the question itself
		assert.LessOrEqual(t, made, 64-2, "most of the connections are those of before")
		assert.LessOrEqual(t, grown(t, map[string]string{"curr_connections": "0"}, server.Stats(""), "curr_connections"), 64+10)
	})
}

// The fleet opens no more than Conns connections. A caller that waits for one leaves with
// its context.
func TestConnsBoundsTheConnections(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release, entered := make(chan struct{}), make(chan struct{}, 8)
		addr := fakeServer(t, func(string) (string, bool) {
			entered <- struct{}{}
			<-release
			return "END\r\n", true
		})
		fleet := openConfig(t, memcache.Config{Servers: []string{addr}, Protocol: memcache.Classic, Timeout: maxWait, Conns: 2})
		trip := func(ctx context.Context) error {
			_, err := storetest.Trip(ctx, fleet, "a", 0, nil, nil, []uint64{1}, make([]int64, 1))
			return err
		}
		var running sync.WaitGroup
		for range 2 {
			running.Go(func() { assert.NoError(t, trip(t.Context())) })
		}
		<-entered
		<-entered
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		require.ErrorIs(t, trip(ctx), context.Canceled)
		require.Empty(t, entered, "a third connection was opened")

		// Close waits for the two, and calls meanwhile get ErrClosed.
		closed := make(chan error, 1)
		go func() { closed <- fleet.Close() }()
		select {
		case <-closed:
			t.Error("Close did not wait for the trips under way")
		case <-time.After(50 * time.Millisecond):
		}
		close(release)
		require.NoError(t, <-closed)
		running.Wait()
		for range 3 { // Conns of them, and one more
			require.ErrorIs(t, trip(t.Context()), memcache.ErrClosed)
		}
	})
}

// gomemcache panics on an answer of one blank line. That is an error, and costs
// no connection.
func TestAnswersThatMakeNoSense(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		addr := fakeServer(t, func(string) (string, bool) { return "\n", true })
		fleet := openConfig(t, memcache.Config{Servers: []string{addr}, Protocol: memcache.Classic, Timeout: maxWait, Conns: 1})
		for range 3 {
			_, err := storetest.Trip(t.Context(), fleet, "a", 1, []uint64{1}, []int64{later()}, nil, make([]int64, 1))
			require.ErrorContains(t, err, "makes no sense")
		}
	})
}

func TestNegativeSettings(t *testing.T) {
	for _, config := range []memcache.Config{{Conns: -1}, {Timeout: -1}} {
		config.Servers = []string{"127.0.0.1:1"}
		_, err := memcache.NewFleet(t.Context(), config)
		require.ErrorContains(t, err, "negative")
	}
}

// Trips that are started and have to wait for their turn have the time of their context
// for that, which may be longer than the fleet's timeout.
func TestStartedTripsQueue(t *testing.T) {
	inBubbles(t, func(t *testing.T, protocol memcache.Protocol) {
		const trips = 60
		const delay = 100 * time.Millisecond // all of them take longer than the timeout
		addr := fakeMeta(t, func(_ int, line string) (string, bool) {
			if time.Sleep(delay); protocol == memcache.Classic {
				return "1\r\n", true
			}
			return sound(line, 1), true
		})
		fleet := openConfig(t, memcache.Config{Servers: []string{addr}, Protocol: protocol, Conns: 1, Timeout: slowTimeout})
		ctx, cancel := context.WithTimeout(t.Context(), maxWait)
		defer cancel()
		var ops []*store.Op
		for i := range trips {
			ops = append(ops, storetest.Op(fmt.Sprint(i), 1, []uint64{1}, []int64{later()}, nil))
		}
		fleet.Do(ctx, ops...)
		for _, op := range ops {
			assert.NoError(t, op.Err)
			assert.Equal(t, 1, op.Receipt.On(0))
		}
	})
}
