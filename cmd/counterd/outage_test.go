package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// One copy, and its server is killed: every hit is answered by its on_error, and all of
// it is said. When the server is back, empty, hits are counted again, and said to be
// incomplete.
func TestAServerIsKilledAndComesBackEmpty(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(rules, []byte(`events:
  open: {limits: [{per: ip, rate: [100/s, 1000/d], on_error: allow}]}
  shut: {limits: [{per: ip, rate: 1000/d, on_error: deny}]}
  own: {limits: [{per: ip, rate: 3/d, on_error: local}]}
`), 0o600))
	server := memcachedtest.Start(t)
	p := startProcess(t, "-rules", rules, "-memcached", server.Addr, "-timeout", "2s", "-grace", "4s")
	c := p.client(t)
	hit := func(event string) (wire.Decision, error) {
		return c.Hit(t.Context(), event, events.Features{"ip": "203.0.113.9"}, 1)
	}
	says := func(path, text string) bool {
		_, body := p.get(t, path)
		return strings.Contains(body, text)
	}
	metric := func(name, value string) string {
		return "\ncounterd_memcached_" + name + `{server="` + server.Addr + `"} ` + value
	}
	logs := func(text string) bool { return strings.Contains(p.log.String(), text) }

	for _, event := range []string{"open", "shut", "own"} {
		d, err := hit(event)
		require.NoError(t, err)
		assert.True(t, d.Allowed)
		assert.Empty(t, d.Limits[0].OnError)
		assert.False(t, d.Limits[len(d.Limits)-1].Incomplete, "nothing is lost at first contact")
	}
	assert.True(t, says("/readyz", `"reachable"`))
	assert.True(t, says("/metrics", metric("up", "1\n")))
	assert.True(t, says("/metrics", metric("lost_since_timestamp_seconds", "0\n")))

	server.Stop()
	for i := range 20 {
		d, err := hit("open")
		require.NoError(t, err)
		assert.True(t, d.Allowed)
		assert.Equal(t, "allow", d.Limits[0].OnError)

		_, err = hit("shut")
		var problem *client.Error
		require.ErrorAs(t, err, &problem)
		assert.Equal(t, http.StatusServiceUnavailable, problem.Status)

		d, err = hit("own")
		require.NoError(t, err)
		assert.Equal(t, i < 3, d.Allowed, "on this process's own counters")
		assert.Equal(t, "local", d.Limits[0].OnError)
		assert.False(t, d.Limits[0].Incomplete)
	}
	require.Eventually(t, func() bool { return logs("a memcached server is down") }, soon, time.Millisecond)
	status, _ := p.get(t, "/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.True(t, says("/metrics", metric("up", "0\n")))
	assert.True(t, says("/metrics", metric("breaker_openings_total", "1\n")))

	server.Restart()
	require.Eventually(t, func() bool { return logs("a memcached server is back") }, soon, time.Millisecond)
	assert.True(t, logs("came back empty"))
	for want := range int64(3) {
		d, err := hit("shut")
		require.NoError(t, err)
		assert.True(t, d.Allowed)
		assert.Equal(t, want+1, d.Limits[0].Count)
		assert.True(t, d.Limits[0].Incomplete)
	}
	// The window of a second, and the grace, are soon over.
	require.Eventually(t, func() bool {
		d, err := hit("open")
		require.NoError(t, err)
		assert.True(t, d.Limits[1].Incomplete)
		return !d.Limits[0].Incomplete
	}, soon, 50*time.Millisecond)
	assert.True(t, says("/readyz", "reachable, empty since 20"))
	assert.False(t, says("/metrics", metric("lost_since_timestamp_seconds", "0\n")))
	assert.NotContains(t, p.log.String(), "203.0.113.9")
}
