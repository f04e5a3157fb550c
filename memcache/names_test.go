package memcache_test

import (
	"context"
	"math/bits"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// A name that leads to several servers, as that of a balancer, is reported: each counts apart.
func TestANameOfSeveralServers(t *testing.T) {
	for _, replicas := range []int{1, 2} {
		inBubbles(t, func(t *testing.T, protocol memcache.Protocol) {
			const name, usual = "balancer.example:11211", "usual.example:11211"
			several := []*memcachedtest.Memory{memcachedtest.StartMemory(t), memcachedtest.StartMemory(t)}
			one := memcachedtest.StartMemory(t)
			var turn atomic.Uint64
			told := make(changes, 1000)
			config := memcache.Config{Servers: []string{name, usual}, Replicas: replicas, Protocol: protocol, OnServerChange: told.changed}
			fleet, err := memcache.NewFleet(t.Context(), memcache.Dialed(config, func(ctx context.Context, addr string, deadline time.Time) (net.Conn, error) {
				if addr == usual {
					return memcachedtest.Dial(ctx, one.Addr, deadline)
				}
				return memcachedtest.Dial(ctx, several[bits.OnesCount64(turn.Add(1))%2].Addr, deadline)
			}))
			require.NoError(t, err)
			defer fleet.Close()
			for range 10 {
				fleet.Ping(t.Context())
				time.Sleep(time.Second)
			}
			told.await(t, "several "+name)
			health := fleet.Health()
			require.True(t, health[0].Several)
			require.False(t, health[1].Several)
			one.Stop()
			one.Restart() // it comes back empty
			time.Sleep(10 * time.Second)
			require.False(t, fleet.Health()[1].Several)
		})
	}
}

// A server under two names, an address and a host name, is used once: with two replicas it would count each hit twice, and
// half of a limit would be admitted.
func TestAServerUnderTwoNames(t *testing.T) {
	inBubbles(t, func(t *testing.T, protocol memcache.Protocol) {
		server := memcachedtest.StartMemory(t)
		config := memcache.Config{Servers: []string{"192.0.2.1:11211", "memcached.example:11211"}, Replicas: 2, Protocol: protocol}
		told, sameAs := make(changes, 1000), atomic.Value{}
		config.OnServerChange = func(change memcache.Change, h memcache.ServerHealth) {
			if change == memcache.Same {
				sameAs.Store(h.SameAs)
			}
			told.changed(change, h)
		}
		fleet, err := memcache.NewFleet(t.Context(), memcache.Dialed(config, func(ctx context.Context, _ string, deadline time.Time) (net.Conn, error) {
			return memcachedtest.Dial(ctx, server.Addr, deadline)
		}))
		require.NoError(t, err)
		defer fleet.Close()
		fleet.Ping(t.Context())
		time.Sleep(10 * time.Second)
		decider, err := limiter.New(limiter.Config{}, hierarchy.NewCounters(hierarchy.Config{Store: fleet}))
		require.NoError(t, err)
		rules, err := rulesfile.Parse([]byte(`events: {e: {limits: [{per: user, rate: 10/h}]}}`))
		require.NoError(t, err)
		admitted := 0
		for range 20 {
			d, err := decider.Hit(t.Context(), limiter.Hit{Event: rules.Events["e"], Features: events.Features{"user": "a"}, Cost: 1})
			require.NoError(t, err)
			if d.Allowed {
				admitted++
			}
		}
		require.Equal(t, 10, admitted)
		told.await(t, "same memcached.example:11211")
		require.Equal(t, "192.0.2.1:11211", sameAs.Load())
		require.Len(t, fleet.Health(), 1)
		require.Equal(t, "192.0.2.1:11211", fleet.Health()[0].Name)
	})
}

// A name that leads to the server of another name for a while, as after a failover, stays in the list.
func TestANameThatMovesStaysInTheList(t *testing.T) {
	inBubbles(t, func(t *testing.T, protocol memcache.Protocol) {
		servers := map[string]*memcachedtest.Memory{"a.example:11211": memcachedtest.StartMemory(t), "b.example:11211": memcachedtest.StartMemory(t)}
		var moved atomic.Bool
		config := memcache.Config{Servers: []string{"a.example:11211", "b.example:11211"}, Protocol: protocol}
		fleet, err := memcache.NewFleet(t.Context(), memcache.Dialed(config, func(ctx context.Context, name string, deadline time.Time) (net.Conn, error) {
			if moved.Load() {
				name = "a.example:11211"
			}
			return memcachedtest.Dial(ctx, servers[name].Addr, deadline)
		}))
		require.NoError(t, err)
		defer fleet.Close()
		fleet.Ping(t.Context())
		time.Sleep(10 * time.Second)
		moved.Store(true)
		servers["b.example:11211"].Stop()
		time.Sleep(10 * time.Second)
		moved.Store(false)
		servers["b.example:11211"].Restart()
		servers["a.example:11211"].Stop()
		servers["a.example:11211"].Restart()
		time.Sleep(time.Minute)
		require.Len(t, fleet.Health(), 2)
	})
}

// A process that starts while a name leads to another server of the list, as during a failover, does not use the name as
// long as it does. It then uses the name as other processes do, also if another server of the list restarts meanwhile.
func TestANameThatLeadsElsewhereAtTheStartIsTakenBack(t *testing.T) {
	const first, second, third = "a.example:11211", "b.example:11211", "c.example:11211"
	for _, name := range []string{first, second} { // the name that leads to the server of the other one
		t.Run(name, func(t *testing.T) {
			inBubbles(t, func(t *testing.T, protocol memcache.Protocol) {
				servers := map[string]*memcachedtest.Memory{}
				for _, name := range []string{first, second, third} {
					servers[name] = memcachedtest.StartMemory(t)
				}
				used := map[string]string{first: second, second: first}[name]
				var home atomic.Bool
				told := make(changes, 1000)
				config := memcache.Config{Servers: []string{first, second, third}, Replicas: 2, Protocol: protocol, OnServerChange: told.changed}
				fleet, err := memcache.NewFleet(t.Context(), memcache.Dialed(config, func(ctx context.Context, asked string, deadline time.Time) (net.Conn, error) {
					if asked == name && !home.Load() {
						asked = used
					}
					return memcachedtest.Dial(ctx, servers[asked].Addr, deadline)
				}))
				require.NoError(t, err)
				defer fleet.Close()
				fleet.Ping(t.Context())
				time.Sleep(10 * time.Second)
				require.Equal(t, []string{first, third}, namesOf(fleet))
				for range 20 { // no look takes the new marker of the server for that of another one
					servers[used].Stop()
					servers[used].Restart()
					time.Sleep(3 * time.Second)
					require.Equal(t, []string{first, third}, namesOf(fleet))
				}
				home.Store(true)
				if name == first { // open connections end when a name moves because its server does
					servers[second].Stop()
					servers[second].Restart()
				}
				time.Sleep(10 * time.Second)
				require.Equal(t, []string{first, second, third}, namesOf(fleet))
				told.await(t, "same "+second)
				told.await(t, "back "+second)
				home.Store(false) // a second failover: the process goes on as others do
				servers[name].Stop()
				servers[name].Restart()
				time.Sleep(10 * time.Second)
				require.Equal(t, []string{first, second, third}, namesOf(fleet))
			})
		})
	}
}

// A list that names a server once more is used as it is, also while a name is not used.
func TestAListWithoutANameThatIsNotUsed(t *testing.T) {
	inBubbles(t, func(t *testing.T, protocol memcache.Protocol) {
		server, other := memcachedtest.StartMemory(t), memcachedtest.StartMemory(t)
		const first, second, third = "a.example:11211", "b.example:11211", "c.example:11211"
		var home atomic.Bool
		config := memcache.Config{Servers: []string{first, second}, Protocol: protocol}
		fleet, err := memcache.NewFleet(t.Context(), memcache.Dialed(config, func(ctx context.Context, name string, deadline time.Time) (net.Conn, error) {
			if name == third || name == second && home.Load() {
				return memcachedtest.Dial(ctx, other.Addr, deadline)
			}
			return memcachedtest.Dial(ctx, server.Addr, deadline)
		}))
		require.NoError(t, err)
		defer fleet.Close()
		fleet.Ping(t.Context())
		require.Equal(t, []string{first}, namesOf(fleet))
		require.NoError(t, fleet.SetServers(t.Context(), []string{first, third}))
		home.Store(true)
		time.Sleep(time.Minute)
		require.Equal(t, []string{first, third}, namesOf(fleet))
	})
}

// namesOf returns the names of the servers in use.
func namesOf(fleet *memcache.Fleet) (names []string) {
	for _, h := range fleet.Health() {
		names = append(names, h.Name)
	}
	return names
}
