package memcache_test

import (
	"context"
	"math/bits"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
