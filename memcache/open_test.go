//go:build openissues

package memcache_test

import (
	"context"
	"net"
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

// Point 5 of the issue Trust, first part: with two replicas, a server under two names (an address and a host name) counts
// each hit twice, so half of the limit is admitted. It has to be used once.
func TestAServerUnderTwoNames(t *testing.T) {
	inBubbles(t, func(t *testing.T, protocol memcache.Protocol) {
		server := memcachedtest.StartMemory(t)
		config := memcache.Config{Servers: []string{"192.0.2.1:11211", "memcached.example:11211"}, Replicas: 2, Protocol: protocol}
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
	})
}
