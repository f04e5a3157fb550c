//go:build testall

package memcache_test

import (
	"context"
	"fmt"
	"github.com/counterd/counterd/internal/testkit"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// replicasOn starts servers and a fleet with two copies on them.
func replicasOn(t *testing.T, protocol memcache.Protocol, n int) (*memcache.Fleet, map[string]*memcachedtest.Server) {
	t.Helper()
	servers := map[string]*memcachedtest.Server{}
	var names []string
	for range n {
		s := memcachedtest.Start(t)
		servers[s.Addr] = s
		names = append(names, s.Addr)
	}
	fleet, err := memcache.NewFleet(context.Background(), memcache.Config{
		Servers: names, Replicas: 2, Protocol: protocol, Timeout: slowTimeout,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, fleet.Close()) })
	return fleet, servers
}

// awaitReplay waits until no hint is pending.
func awaitReplay(t *testing.T, fleet *memcache.Fleet) {
	t.Helper()
	testkit.Await(t, maxWait, "no hint is pending", func() bool { n, _ := fleet.PendingHints(); return n == 0 })
}

func TestEveryReplicaHasIt(t *testing.T) {
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		fleet, servers := replicasOn(t, protocol, 3)
		for i := range 30 {
			counter := fmt.Sprint(i)
			keep(t, fleet, counter, 3, 1, 2)
			on := fleet.Servers(counter)
			require.Len(t, on, 2)
			for name := range servers {
				want := []int64{0, 0}
				if slices.Contains(on, name) {
					want = []int64{3, 3}
				}
				require.Equal(t, want, holds(t, fleet, counter, name, 1, 2))
			}
		}
		pending, _ := fleet.PendingHints()
		assert.Zero(t, pending)
		assert.Empty(t, fleet.Differing())
	})
}

// A server dies and comes back empty: what was counted stays, and what it missed meanwhile
// is made up for.
func TestAReplicaDies(t *testing.T) {
	leaktest.Parallel(t)
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		leaktest.Parallel(t)
		fleet, servers := replicasOn(t, protocol, 2)
		for i := range 20 {
			keep(t, fleet, fmt.Sprint(i), 5, 1, 2)
		}
		dead := servers[fleet.Servers("0")[0]]
		dead.Stop()
		for i := range 20 {
			require.Equal(t, []int64{5, 5}, read(t, fleet, fmt.Sprint(i), 1, 2))
			keep(t, fleet, fmt.Sprint(i), 1, 2)
			keep(t, fleet, fmt.Sprint(i), 1, 2)
			require.Equal(t, []int64{5, 7}, read(t, fleet, fmt.Sprint(i), 1, 2))
		}
		pending, to := fleet.PendingHints()
		assert.Equal(t, 20, pending, "those of one second are one")
		assert.Equal(t, 1, to)
		require.Error(t, storetest.Delete(t.Context(), fleet, "0", []uint64{1}), "not every replica has acknowledged it")
		dead.Restart()
		awaitReplay(t, fleet)
		for i := range 20 {
			counter := fmt.Sprint(i)
			require.Equal(t, []int64{0, 2}, holds(t, fleet, counter, dead.Addr, 1, 2))
			read(t, fleet, counter, 1, 2)
		}
		assert.Len(t, fleet.Differing(), 20, "what it had before is for the repairer")
	})
}

// A server stops in its tracks and goes on: it may count twice what it was sent then.
func TestAReplicaStalls(t *testing.T) {
	leaktest.Parallel(t)
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		leaktest.Parallel(t)
		fleet, servers := replicasOn(t, protocol, 2)
		keep(t, fleet, "a", 5, 1)
		on := fleet.Servers("a")
		stalled := servers[on[1]]
		stalled.Pause()
		landed := landedOf(t, fleet, "a", 1, 1)
		storetest.Hint(fleet, "a", 1, []uint64{1}, []int64{later()}, landed)
		require.NoError(t, storetest.RollBack(t.Context(), fleet, "a", 0, []uint64{1}, store.Acknowledged(0)))
		stalled.Resume()
		awaitReplay(t, fleet)
		require.Equal(t, []int64{6}, holds(t, fleet, "a", on[0], 1))
		testkit.Await(t, maxWait, "the value on the second replica", func() bool {
			value := holds(t, fleet, "a", on[1], 1)[0]
			return value == 6 || value == 7
		})
	})
}

// A rollback goes only to the replicas that acknowledged the adds.
func TestRollBackFromTheReplicasThatHaveIt(t *testing.T) {
	fleet, servers := replicasOn(t, memcache.Meta, 2)
	keep(t, fleet, "a", 5, 1, 2)
	on := fleet.Servers("a")
	servers[on[0]].Stop()
	landed := landedOf(t, fleet, "a", 1, 1, 2)
	servers[on[0]].Restart()
	testkit.Await(t, maxWait, "a trip that has both servers", func() bool {
		value := make([]int64, 1)
		_, err := storetest.Trip(t.Context(), fleet, "a", 1, []uint64{1}, []int64{later()}, nil, value)
		return err == nil && storetest.Look(t.Context(), fleet, "a", on[0], []uint64{1}, value, make([]uint64, 1)) == nil && value[0] > 0
	})
	before := holds(t, fleet, "a", on[0], 1)
	require.NoError(t, storetest.RollBack(t.Context(), fleet, "a", 1, []uint64{1, 2}, landed))
	assert.Equal(t, before, holds(t, fleet, "a", on[0], 1))
	assert.Equal(t, []int64{5}, holds(t, fleet, "a", on[1], 2))
}

// The servers change while the fleet is in use.
func TestServersChange(t *testing.T) {
	for _, replicas := range []int{1, 2} {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			names := memcachedtest.StartMany(t, 4)
			fleet, err := memcache.NewFleet(t.Context(), memcache.Config{Servers: names[:3], Replicas: replicas, Timeout: maxWait / 4})
			require.NoError(t, err)
			closed := false
			defer func() {
				if !closed {
					require.NoError(t, fleet.Close())
				}
			}()
			const counters = 200
			landed := make([]store.Receipt, counters)
			places := make([][]string, counters)
			for i := range counters {
				places[i] = fleet.Servers(fmt.Sprint(i))
				landed[i] = landedOf(t, fleet, fmt.Sprint(i), 3, 1)
			}
			gaps := fleet.Gaps()
			require.ErrorContains(t, fleet.SetServers(t.Context(), []string{names[0], "nonsense"}), "nonsense")
			require.ErrorContains(t, fleet.SetServers(t.Context(), nil), "no servers")
			require.Equal(t, gaps, fleet.Gaps(), "an error changes nothing")
			require.NoError(t, fleet.SetServers(t.Context(), []string{names[3], names[1], names[2], names[0]}))
			assert.Greater(t, fleet.Gaps(), gaps)
			moved := 0
			for i := range counters {
				counter := fmt.Sprint(i)
				now := fleet.Servers(counter)
				stay := 0
				for _, name := range now {
					if slices.Contains(places[i], name) {
						stay++
					}
				}
				if stay < replicas {
					moved++
					require.Contains(t, now, names[3], "what moves, moves to the new server")
				}
				require.GreaterOrEqual(t, stay, replicas-1)
				if stay > 0 {
					require.Equal(t, []int64{3}, read(t, fleet, counter, 1))
				} else {
					require.Equal(t, []int64{0}, read(t, fleet, counter, 1))
				}
				// The rollback goes to the servers of the add, not to the counter's servers
				// of now.
				require.NoError(t, storetest.RollBack(t.Context(), fleet, counter, 1, []uint64{1}, landed[i]))
				for _, name := range places[i] {
					require.Equal(t, []int64{2}, holds(t, fleet, counter, name, 1))
				}
			}
			assert.InDelta(t, counters*replicas/4, moved, counters/5)

			require.NoError(t, fleet.SetServers(t.Context(), names[3:]))
			add(t, fleet, "only one is left", 1, 1)
			assert.Len(t, fleet.Ping(t.Context()), 1)
			for range 10 { // no process remembers a list so long past
				require.NoError(t, fleet.SetServers(t.Context(), names[2:]))
				require.NoError(t, fleet.SetServers(t.Context(), names[3:]))
			}
			require.ErrorContains(t, storetest.RollBack(t.Context(), fleet, "0", 1, []uint64{1}, landed[0]), "changed")
			closed = true
			require.NoError(t, fleet.Close())
			require.ErrorIs(t, fleet.SetServers(t.Context(), names), memcache.ErrClosed)
		})
	}
}

// slowly forwards connections to the server, and holds each answer back for a while after
// begin is called.
func slowly(t *testing.T, server string, by time.Duration) (address string, begin func()) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var running sync.WaitGroup
	var begun atomic.Bool
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				behind, err := net.Dial("tcp", server)
				if !assert.NoError(t, err) {
					return
				}
				defer behind.Close()
				running.Go(func() { io.Copy(behind, conn); behind.Close() })
				for answer := make([]byte, 4096); ; {
					n, err := behind.Read(answer)
					if err != nil {
						return
					}
					if begun.Load() {
						time.Sleep(by)
					}
					if _, err := conn.Write(answer[:n]); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() { listener.Close(); running.Wait() })
	return listener.Addr().String(), func() { begun.Store(true) }
}

// A copy that always answers too late to be waited for does not count twice: its late
// answers are taken note of.
func TestASlowReplicaDoesNotCountTwice(t *testing.T) {
	leaktest.Parallel(t)
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		leaktest.Parallel(t)
		const timeout = slowTimeout
		quick, behind := memcachedtest.Start(t).Addr, memcachedtest.Start(t).Addr
		for _, server := range []string{quick, behind} { // to create it takes two round trips on the classic path
			add(t, openUnwatched(t, memcache.Config{Servers: []string{server}}), "a", 1, 1) // under this name it has no marker
		}
		slow, begin := slowly(t, behind, timeout*6/10)
		// A look that has to write the marker as well would be one more failure.
		fleet, err := memcache.NewFleet(t.Context(), memcache.Paced(memcache.Config{Servers: []string{quick, slow}, Replicas: 2, Protocol: protocol, Timeout: timeout}, time.Hour))
		require.NoError(t, err)
		defer fleet.Close()
		keep(t, fleet, "a", 1, 1)
		begin()
		const trips = 2 // more failures in a row would be those of a server that is down
		pending := 0
		for range trips {
			keep(t, fleet, "a", 1, 1)
			n, _ := fleet.PendingHints()
			pending = max(pending, n)
		}
		assert.Equal(t, 1, pending, "or it was not slow")
		awaitReplay(t, fleet)
		assert.Equal(t, []int64{2 + trips}, holds(t, fleet, "a", quick, 1))
		assert.Equal(t, []int64{2 + trips}, holds(t, fleet, "a", slow, 1))
	})
}

// A slow replica does not count twice either if it answers while the hit is still being decided,
// before its hint: other counters of the hit have a slow replica, too.
func TestASlowReplicaThatAnswersBeforeTheHintDoesNotCountTwice(t *testing.T) {
	leaktest.Parallel(t)
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		leaktest.Parallel(t)
		const timeout = slowTimeout
		quick, behind := memcachedtest.Start(t).Addr, memcachedtest.Start(t).Addr
		for _, server := range []string{quick, behind} {
			add(t, openUnwatched(t, memcache.Config{Servers: []string{server}}), "a", 1, 1) // under this name it has no marker
		}
		slow, begin := slowly(t, behind, timeout*6/10)
		// A look that has to write the marker as well would be one more failure.
		fleet, err := memcache.NewFleet(t.Context(), memcache.Paced(memcache.Config{Servers: []string{quick, slow}, Replicas: 2, Protocol: protocol, Timeout: timeout}, time.Hour))
		require.NoError(t, err)
		defer fleet.Close()
		keep(t, fleet, "a", 1, 1)
		begin()
		landed := landedOf(t, fleet, "a", 1, 1)
		time.Sleep(timeout * 3 / 10)
		storetest.Hint(fleet, "a", 1, []uint64{1}, []int64{later()}, landed)
		awaitReplay(t, fleet)
		assert.Equal(t, []int64{3}, holds(t, fleet, "a", quick, 1))
		assert.Equal(t, []int64{3}, holds(t, fleet, "a", slow, 1))
	})
}

// A server without versions cannot be repaired. It answers with that error, not as an empty
// server.
func TestAServerWithoutVersions(t *testing.T) {
	server := memcachedtest.Start(t, "-C")
	fleet := openFleet(t, server.Addr)
	add(t, fleet, "a", 1, 1)
	err := storetest.Look(t.Context(), fleet, "a", server.Addr, []uint64{1}, make([]int64, 1), make([]uint64, 1))
	assert.ErrorContains(t, err, "versions")
}

// A replica with a bad item does not stop the counter, and does not delay the hints of
// others. The counter is listed for repair, which replaces the item.
func TestABadItemOnOneReplica(t *testing.T) {
	leaktest.Parallel(t)
	onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
		leaktest.Parallel(t)
		fleet, servers := replicasOn(t, protocol, 2)
		keep(t, fleet, "a", 5, 1, 2)
		order := fleet.Servers("a")
		storeItem(t, servers[order[0]].Addr, memcache.Keys("a", []uint64{2})[0], 0, garbage["thirty digits"].value)
		require.Equal(t, []int64{5, 5}, read(t, fleet, "a", 1, 2))
		require.Equal(t, []string{"a"}, fleet.Differing())
		keep(t, fleet, "a", 1, 1, 2)
		require.Equal(t, []int64{6, 6}, read(t, fleet, "a", 1, 2))
		awaitReplay(t, fleet)
		for _, health := range fleet.Health() {
			require.Zero(t, health.Openings)
		}
		values, versions := make([]int64, 2), make([]uint64, 2)
		require.NoError(t, storetest.Look(t.Context(), fleet, "a", order[0], []uint64{1, 2}, values, versions))
		require.Zero(t, values[1])
		raised, err := storetest.Raise(t.Context(), fleet, "a", order[0], 2, versions[1], 6, later())
		require.NoError(t, err)
		require.True(t, raised)
		require.Equal(t, int64(6), holds(t, fleet, "a", order[0], 2)[0])

		for _, server := range order { // on both, nothing says what it was
			storeItem(t, servers[server].Addr, memcache.Keys("a", []uint64{2})[0], 0, "abc")
		}
		_, err = storetest.Trip(t.Context(), fleet, "a", 0, nil, nil, []uint64{1, 2}, make([]int64, 2))
		requireBad(t, err)
	})
}

// Idle connections that Memcached itself closes cost no call an error.
func TestConnectionsThatTheServerFindsIdle(t *testing.T) {
	leaktest.Parallel(t)
	authority := memcachedtest.NewAuthority(t)
	for name, demands := range map[string]memcachedtest.Security{"plain": {}, "TLS": {Authority: authority}} {
		t.Run(name, func(t *testing.T) {
			leaktest.Parallel(t)
			onBothProtocols(t, func(t *testing.T, protocol memcache.Protocol) {
				leaktest.Parallel(t)
				server := memcachedtest.StartSecure(t, demands, "-o", "idle_timeout=1")
				fleet := openConfig(t, secured(t, demands, memcache.Config{Servers: []string{server.Addr}, Protocol: protocol}))
				add(t, fleet, "a", 1, 1)
				testkit.Await(t, maxWait, "the server closes idle connections", func() bool { return server.Stats("")["idle_kicks"] != "0" })
				require.Equal(t, []int64{2}, add(t, fleet, "a", 1, 1))
			})
		})
	}
}
