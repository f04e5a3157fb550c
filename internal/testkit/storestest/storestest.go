// Package storestest opens the stores that tests of engines run on: in this process, and on real
// Memcached servers.
package storestest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// fleets are the Memcached servers that OnEveryStore runs tests on, beside the embedded store.
var fleets = map[string]fleet{
	"three servers": {3, []memcache.Protocol{memcache.Auto, memcache.Classic}},
}

type fleet struct {
	servers   int
	protocols []memcache.Protocol // of the processes, in turn
}

// OnEveryStore runs a test as OnEverySoloStore does, and with two replicas of each counter.
func OnEveryStore(t *testing.T, clock func() time.Time, test func(t *testing.T, open func() store.Store)) {
	OnEverySoloStore(t, clock, test)
	t.Run("two replicas", func(t *testing.T) { onServers(t, clock, fleets["three servers"], 2, test) })
}

// OnEverySoloStore runs a test, such as one of bursts, on the embedded store and on three Memcached
// servers, with which every other process speaks the meta commands. With the build tag testall it also runs the test on one
// server, where every process speaks the meta commands, or none does, and on a server that demands
// TLS and a password. The function open that the test gets returns the store as one process has it;
// each call opens it for another process. The embedded store has one process.
func OnEverySoloStore(t *testing.T, clock func() time.Time, test func(t *testing.T, open func() store.Store)) {
	t.Run("embedded", func(t *testing.T) {
		embedded := memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock})
		test(t, func() store.Store { return embedded })
	})
	for name, fleet := range fleets {
		t.Run(name, func(t *testing.T) { onServers(t, clock, fleet, 1, test) })
	}
	onSecured(t, clock, test)
}

func onServers(
	t *testing.T, clock func() time.Time, f fleet, replicas int, test func(t *testing.T, open func() store.Store),
) {
	servers := memcachedtest.StartMany(t, f.servers)
	opened := 0
	// The servers' time is real and does not follow the test's clock. So that no bucket expires under a slow test,
	// each lives an hour longer; package memcache tests how long they do live.
	earlier := func() time.Time { return clock().Add(-time.Hour) }
	test(t, func() store.Store {
		opened++
		protocol := f.protocols[(opened-1)%len(f.protocols)]
		return Open(t, memcache.Config{Protocol: protocol, Servers: servers, Replicas: replicas, Clock: earlier})
	})
}

// OpenFleet returns a fleet of the servers, which the end of the test closes.
func OpenFleet(tb testing.TB, clock func() time.Time, servers ...string) *memcache.Fleet {
	tb.Helper()
	return Open(tb, memcache.Config{Servers: servers, Clock: clock})
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
