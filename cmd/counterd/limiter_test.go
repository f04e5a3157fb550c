package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// Two processes decide on the same counters.
func TestProcessesShareTheLimits(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(rules, []byte("events: {e: {limits: [{per: ip, rate: 5/d}]}}"), 0o600))
	servers := strings.Join(memcachedtest.StartMany(t, 2), ",")
	var clients []*client.Client
	for range 2 {
		clients = append(clients, startProcess(t, "-rules", rules, "-memcached", servers, "-timeout", "5s", "-grace", "10s").client(t))
	}
	for i := range 8 {
		d, err := clients[i%2].Hit(t.Context(), "e", events.Features{"ip": "203.0.113.9"}, 1)
		require.NoError(t, err)
		assert.Equal(t, i < 5, d.Allowed, "%d: %+v", i, d)
		assert.Equal(t, int64(min(i+1, 5)), d.Limits[0].Count)
	}
}

// Without a store the example's rules admit, within the timeout, and the log says
// so without a word about the features that were let in.
func TestHitsWithoutAStore(t *testing.T) {
	p := startProcess(t, "-memcached", "127.0.0.1:1")
	for range 3 {
		d, err := p.client(t).Hit(t.Context(), "url_shorten", events.Features{"ip": "203.0.113.9"}, 1)
		require.NoError(t, err)
		assert.True(t, d.Allowed)
		assert.Equal(t, "allow", d.Limits[0].OnError)
	}
	assert.Contains(t, p.log.String(), "store failed in a decision")
	assert.NotContains(t, p.log.String(), "203.0.113.9")
}
