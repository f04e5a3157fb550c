package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// One copy, and its server is killed: the log, /readyz and /metrics say so. When the server is back, empty, hits are
// counted again, and said to be incomplete.
func TestAServerIsKilledAndComesBackEmpty(t *testing.T) {
	leaktest.Parallel(t)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	testkit.WriteFile(t, rules, "events: {open: {limits: [{per: ip, rate: [100000/s, 1000000/d]}]}, shut: {limits: [{per: ip, rate: 1000/d, on_error: deny}]}}")
	server := memcachedtest.Start(t)
	p := startProcess(t, "-rules", rules, "-memcached", server.Addr, "-timeout", "1s", "-grace", "2s")
	c := p.client(t)
	hit := func(event string) wire.Decision {
		d, err := c.Hit(t.Context(), event, visitor, 1)
		require.NoError(t, err)
		assert.True(t, d.Allowed)
		return d
	}
	metric := func(name string) int {
		return p.metric(t, fmt.Sprintf("counterd_memcached_%s{server=%q}", name, server.Addr))
	}
	assert.False(t, hit("open").Limits[1].Incomplete, "nothing is lost at first contact")
	assert.Equal(t, "reachable", p.readiness(t)[server.Addr])
	assert.Equal(t, 1, metric("up"))
	assert.Zero(t, metric("lost_since_timestamp_seconds"))

	server.Stop()
	for range 10 {
		assert.Equal(t, "allow", hit("open").Limits[0].OnError)
		_, err := c.Hit(t.Context(), "shut", visitor, 1)
		require.ErrorIs(t, err, client.ErrUnavailable)
	}
	p.log.Await(t, "a memcached server is down")
	assert.Equal(t, http.StatusServiceUnavailable, status(t, p.url+"/readyz"))
	assert.Zero(t, metric("up"))
	assert.Equal(t, 1, metric("breaker_openings_total"))

	server.Restart()
	p.log.Await(t, "a memcached server is back")
	p.log.Await(t, "came back empty")
	for want := range int64(3) {
		d := hit("shut")
		assert.Equal(t, want+1, d.Limits[0].Count)
		assert.True(t, d.Limits[0].Incomplete)
	}
	testkit.Await(t, soon, "the window of a second, and the grace, are over", func() bool {
		d := hit("open")
		assert.True(t, d.Limits[1].Incomplete)
		return !d.Limits[0].Incomplete
	})
	assert.Regexp(t, "reachable, empty since 20", p.readiness(t)[server.Addr])
	assert.NotZero(t, metric("lost_since_timestamp_seconds"))
	assert.NotContains(t, p.log.String(), "203.0.113.9")
}

// With two copies a server that dies is in the log, at /readyz and /metrics, and neither in
// hits nor in counts; a reset that it has not acknowledged is a 503.
func TestAReplicaIsMissing(t *testing.T) {
	leaktest.Parallel(t)
	servers := []*memcachedtest.Server{memcachedtest.Start(t), memcachedtest.Start(t)}
	p := startProcess(t, "-memcached", servers[0].Addr+","+servers[1].Addr, "-replicas", "2", "-timeout", "1s", "-grace", "2s")
	c, who := p.client(t), visitor
	_, err := c.Increment(t.Context(), "url_shorten", who, 7, time.Now().Add(-time.Hour))
	require.NoError(t, err)
	servers[0].Stop()
	p.log.Await(t, "a memcached server is down: its counters are decided on their other replicas")
	d, err := c.Hit(t.Context(), "url_shorten", who, 1)
	require.NoError(t, err)
	assert.True(t, d.Allowed)
	for _, limit := range d.Limits {
		assert.Empty(t, limit.OnError)
		assert.False(t, limit.Incomplete, limit.Name)
	}
	count, err := c.Count(t.Context(), "url_shorten", who, 24*time.Hour, time.Time{})
	require.NoError(t, err)
	assert.Equal(t, int64(8), count.Count)
	assert.Equal(t, 1, p.metric(t, "counterd_hints_pending"))
	assert.Equal(t, 1, p.metric(t, "counterd_repair_counters"))
	assert.Zero(t, p.metric(t, "counterd_repair_overflowed"))
	assert.Equal(t, http.StatusOK, status(t, p.url+"/readyz"))

	err = c.Reset(t.Context(), "url_shorten", who)
	require.ErrorIs(t, err, client.ErrUnavailable)
	assert.Contains(t, err.Error(), "503")

	servers[0].Restart()
	p.log.Await(t, "came back empty, or is new: its counters are copied to it from their other replicas")
	p.log.Await(t, "what a memcached server lacked was copied to it")
	testkit.Await(t, soon, "the repair ends", func() bool { return p.metric(t, "counterd_repair_counters_left") == 0 })
	assert.Positive(t, p.metric(t, "counterd_repair_raised_buckets_total"))
	testkit.Await(t, soon, "the server is whole", func() bool { return p.readiness(t)[servers[0].Addr] == "reachable" })
	servers[1].Stop()
	p.log.Await(t, "a memcached server is down", "server="+servers[1].Addr)
	count, err = c.Count(t.Context(), "url_shorten", who, 24*time.Hour, time.Time{})
	require.NoError(t, err)
	assert.LessOrEqual(t, count.Count, int64(8), "the reset that failed has deleted it here or not at all")
}
