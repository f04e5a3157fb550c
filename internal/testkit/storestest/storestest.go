// Package storestest opens the stores that tests of engines run on: in this process, and on real
// Memcached servers.
package storestest

import (
	"context"
	"crypto/tls"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// OnEveryStore runs a test on the embedded store, on one Memcached server, where every
// process speaks the meta commands, or none does, and on three, where every other one
// does. The function open that it gets returns the store as one process has it; called
// again, as another process does. The embedded store has one process. Another server
// demands TLS and a password.
func OnEveryStore(t *testing.T, clock func() time.Time, test func(t *testing.T, open func() store.Store)) {
	t.Run("embedded", func(t *testing.T) {
		embedded := memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock})
		test(t, func() store.Store { return embedded })
	})
	for name, fleet := range map[string]struct {
		servers   int
		protocols []memcache.Protocol // of the processes, in turn
	}{
		"one server":    {1, []memcache.Protocol{memcache.Meta}},
		"classic":       {1, []memcache.Protocol{memcache.Classic}},
		"three servers": {3, []memcache.Protocol{memcache.Auto, memcache.Classic}},
	} {
		t.Run(name, func(t *testing.T) {
			servers := memcachedtest.StartMany(t, fleet.servers)
			opened := 0
			// The servers' time is real and does not follow the test's clock. So that
			// no bucket expires under a slow test, each lives an hour longer;
			// package memcache tests how long they do live.
			earlier := func() time.Time { return clock().Add(-time.Hour) }
			test(t, func() store.Store {
				opened++
				return OpenFleetOf(t, fleet.protocols[(opened-1)%len(fleet.protocols)], earlier, servers...)
			})
		})
	}
	t.Run("secured", func(t *testing.T) {
		authority := memcachedtest.NewAuthority(t)
		server := memcachedtest.StartSecure(t, memcachedtest.Security{Authority: authority, User: "counterd", Password: "sesame"})
		config := memcache.Config{
			Servers: []string{server.Addr},
			TLS:     func() (*tls.Config, error) { return authority.Client(), nil },
			Credentials: func() (memcache.Credentials, error) {
				return memcache.Credentials{User: "counterd", Password: "sesame"}, nil
			},
			Clock: func() time.Time { return clock().Add(-time.Hour) },
		}
		test(t, func() store.Store { return Open(t, config) })
	})
}

// OpenFleet returns a fleet of the servers, which the end of the test closes.
func OpenFleet(tb testing.TB, clock func() time.Time, servers ...string) *memcache.Fleet {
	tb.Helper()
	return OpenFleetOf(tb, memcache.Auto, clock, servers...)
}

// OpenFleetOf is OpenFleet with a protocol.
func OpenFleetOf(tb testing.TB, protocol memcache.Protocol, clock func() time.Time, servers ...string) *memcache.Fleet {
	tb.Helper()
	return Open(tb, memcache.Config{Protocol: protocol, Servers: servers, Clock: clock})
}

// Open returns a fleet, which the end of the test closes.
func Open(tb testing.TB, config memcache.Config) *memcache.Fleet {
	tb.Helper()
	leaktest.Check(tb)
	config.Timeout = 20 * time.Second // the machine that runs the tests may be busy
	fleet, err := memcache.NewFleet(context.Background(), config)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, fleet.Close()) })
	return fleet
}

// Embedded returns a store in this process.
func Embedded(clock func() time.Time) *memcache.Embedded {
	return memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock})
}
