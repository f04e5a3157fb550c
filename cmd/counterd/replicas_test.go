package main

import (
	"bytes"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// With two copies a server that dies is in the log, at /readyz and /metrics, and neither in
// hits nor in counts; a reset that it has not acknowledged is a 503.
func TestAReplicaIsMissing(t *testing.T) {
	leaktest.Parallel(t)
	servers := []*memcachedtest.Server{memcachedtest.Start(t), memcachedtest.Start(t)}
	p := startProcess(t, "-memcached", servers[0].Addr+","+servers[1].Addr, "-replicas", "2", "-timeout", "2s", "-grace", "4s")
	c, who := p.client(t), events.Features{"ip": "203.0.113.9"}
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
	require.Eventually(t, func() bool { return p.metric(t, "counterd_repair_counters_left") == 0 }, soon, time.Millisecond)
	assert.Positive(t, p.metric(t, "counterd_repair_raised_buckets_total"))
	servers[1].Stop()
	p.log.Await(t, "server="+servers[1].Addr)
	count, err = c.Count(t.Context(), "url_shorten", who, 24*time.Hour, time.Time{})
	require.NoError(t, err)
	assert.LessOrEqual(t, count.Count, int64(8), "the reset that failed has deleted it here or not at all")
}

// counterd keys says where the copies of a counter are.
func TestKeysOfReplicas(t *testing.T) {
	var stdout bytes.Buffer
	args := []string{"keys", "-event", "url_shorten", "-feature", "ip:203.0.113.9", "-memcached", "10.0.0.1:1,10.0.0.2:1,10.0.0.3:1", "-replicas", "2"}
	require.Equal(t, exitOK, run(t.Context(), args, &stdout, os.Stderr))
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	fields := strings.Fields(lines[1])
	assert.Len(t, strings.Split(fields[len(fields)-1], ","), 2, lines[1])
	assert.Equal(t, exitUsage, run(t.Context(), append(args[:len(args)-1:len(args)-1], "9"), &stdout, &stdout))
}
