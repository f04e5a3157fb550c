package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// dayKey is the key of the day's bucket, and its server, as counterd keys prints them.
func dayKey(t *testing.T, args ...string) (key, server string) {
	t.Helper()
	text := output(t, exitOK, append([]string{"keys", "-event", "url_shorten", "-feature", "ip:203.0.113.9"}, args...)...)
	day := strings.Fields(strings.Split(strings.TrimSpace(text), "\n")[4])
	return day[2], day[3]
}

// Processes with one secret share counters, those with others do not, and all of them say so; counterd keys finds the
// keys that are there. The secret is nowhere in the log.
func TestKeySecret(t *testing.T) {
	const mark = "sesame-open-sesame"
	servers := []*memcachedtest.Server{memcachedtest.Start(t), memcachedtest.Start(t)}
	flags := []string{"-memcached", servers[0].Addr + "," + servers[1].Addr}
	file, same := testkit.SecretFile(t, mark+"\n"), testkit.SecretFile(t, mark+"\r\nmore\n")
	p, q := startProcess(t, append(flags, "-key-secret", file)...), startProcess(t, append(flags, "-key-secret", same)...)
	_, err := p.client(t).Increment(t.Context(), "url_shorten", visitor, 7, time.Time{})
	require.NoError(t, err)
	counted := func(p *process) int64 {
		c, err := p.client(t).Count(t.Context(), "url_shorten", visitor, 24*time.Hour, time.Time{})
		require.NoError(t, err)
		return c.Count
	}
	assert.Equal(t, int64(7), counted(q))
	assert.NotContains(t, p.log.String()+q.log.String(), "key secret", "nothing to warn of")
	assert.Contains(t, p.log.String(), "key_secret=true")

	key, server := dayKey(t, append(flags, "-key-secret", file)...)
	plain, _ := dayKey(t, flags...)
	alone, _ := dayKey(t, "-key-secret", same)
	assert.Equal(t, key, alone)
	for _, s := range servers {
		assert.Equal(t, s.Addr == server, len(s.Ask("get "+key)) == 2 && s.Ask("get " + key)[1] == "7")
		assert.Empty(t, s.Ask("get "+plain))
	}

	other := startProcess(t, flags...)
	assert.Zero(t, counted(other))
	host, err := os.Hostname()
	require.NoError(t, err)
	for _, noticed := range []*process{other, p, q} { // the earlier ones, too
		noticed.log.Await(t, "level=WARN", "has another key secret", "server="+servers[0].Addr)
		noticed.log.Await(t, "level=WARN", "has another key secret", "server="+servers[1].Addr)
		assert.Equal(t, 1, noticed.metric(t, `counterd_memcached_key_secret_mismatch{server="`+servers[0].Addr+`"}`))
		assert.Equal(t, "reachable, another key secret in use by "+host, noticed.readiness(t)[servers[0].Addr])
	}
	assert.NotContains(t, p.log.String()+q.log.String(), "sesame")
}

// counterd keys prints the keys of a log, of leases and of replicas, which are there.
func TestKeys(t *testing.T) {
	server := memcachedtest.Start(t)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	testkit.WriteFile(t, rules, "events: {log: {limits: [{per: ip, rate: 7/d, algorithm: sliding-log}]}, leases: {limits: [{per: ip, concurrent: 4, lease: 1m}]}}")
	flags := []string{"-memcached", server.Addr, "-rules", rules}
	c := startProcess(t, flags...).client(t)
	for _, event := range []string{"log", "leases"} {
		_, err := c.Hit(t.Context(), event, visitor, 1)
		require.NoError(t, err)
		lines := strings.Split(strings.TrimSpace(output(t, exitOK, append([]string{"keys", "-event", event, "-feature", "ip:203.0.113.9"}, flags...)...)), "\n")
		require.Len(t, lines, 2, "it is all that the counter has")
		fields := strings.Fields(lines[1])
		require.Equal(t, []string{event, "-"}, fields[:2])
		assert.NotEmpty(t, server.Ask("get "+fields[2]), "the key is there")
	}
	const replicas = 2
	_, servers := dayKey(t, "-memcached", "10.0.0.1:1,10.0.0.2:1,10.0.0.3:1", "-replicas", fmt.Sprint(replicas))
	assert.Len(t, strings.Split(servers, ","), replicas)
}
