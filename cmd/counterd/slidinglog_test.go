package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// Two processes with one rules file share a log: exactly as many hits as the limit are admitted. Its
// key is the one that keys prints.
func TestProcessesShareALog(t *testing.T) {
	server := memcachedtest.Start(t)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(rules, []byte("events: {login: {limits: [{per: ip, rate: 7/d, algorithm: sliding-log, on_error: deny}]}}"), 0o600))
	features, admitted := events.Features{"ip": "203.0.113.9"}, 0
	for range 2 {
		c := startProcess(t, "-memcached", server.Addr, "-timeout", "5s", "-grace", "10s", "-rules", rules).client(t)
		for range 5 {
			d, err := c.Hit(t.Context(), "login", features, 1)
			require.NoError(t, err)
			assert.Equal(t, "sliding-log", d.Limits[0].Algorithm)
			assert.False(t, d.Limits[0].Incomplete)
			if d.Allowed {
				admitted++
			}
		}
	}
	assert.Equal(t, 7, admitted)

	var stdout bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), []string{"keys", "-event", "login", "-feature", "ip:203.0.113.9", "-rules", rules, "-memcached", server.Addr}, &stdout, os.Stderr))
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	require.Len(t, lines, 2, "its log is all that it has")
	log := strings.Fields(lines[1])
	require.Equal(t, []string{"log", "-"}, log[:2])
	assert.NotEmpty(t, server.Ask("get "+log[2]), "the key is there")
}
