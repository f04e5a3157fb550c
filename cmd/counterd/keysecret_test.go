package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// dayKey is the key of the day's bucket, and its server, as counterd keys prints them.
func dayKey(t *testing.T, args ...string) (key, server string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	args = append([]string{"keys", "-event", "url_shorten", "-feature", "ip:203.0.113.9"}, args...)
	require.Equal(t, exitOK, run(t.Context(), args, &stdout, &stderr), "%s", &stderr)
	day := strings.Fields(strings.Split(strings.TrimSpace(stdout.String()), "\n")[4])
	return day[2], day[3]
}

// Processes with one secret share counters, those with others do not, and all of them say so;
// counterd keys finds the keys that are there. The secret is nowhere in the log.
func TestKeySecret(t *testing.T) {
	const mark = "sesame-open-sesame"
	first, second := memcachedtest.Start(t), memcachedtest.Start(t)
	servers := first.Addr + "," + second.Addr
	file, same := testkit.SecretFile(t, mark+"\n"), testkit.SecretFile(t, mark+"\r\nmore\n")
	start := func(args ...string) *process {
		return startProcess(t, append([]string{"-memcached", servers, "-timeout", "5s", "-grace", "10s"}, args...)...)
	}
	who := events.Features{"ip": "203.0.113.9"}
	p, q := start("-key-secret", file), start("-key-secret", same)
	_, err := p.client(t).Increment(t.Context(), "url_shorten", who, 7, time.Time{})
	require.NoError(t, err)
	counted := func(p *process) int64 {
		c, err := p.client(t).Count(t.Context(), "url_shorten", who, 24*time.Hour, time.Time{})
		require.NoError(t, err)
		return c.Count
	}
	assert.Equal(t, int64(7), counted(p))
	assert.Equal(t, int64(7), counted(q))
	assert.NotContains(t, p.log.String()+q.log.String(), "key secret", "nothing to warn of")
	assert.Contains(t, p.log.String(), "key_secret=true")

	key, server := dayKey(t, "-memcached", servers, "-key-secret", file)
	plain, _ := dayKey(t, "-memcached", servers)
	assert.NotEqual(t, plain, key)
	keyAlone, _ := dayKey(t, "-key-secret", same)
	assert.Equal(t, key, keyAlone)
	holder := map[string]*memcachedtest.Server{first.Addr: first, second.Addr: second}[server]
	assert.Equal(t, "7", holder.Ask("get " + key)[1])
	assert.Empty(t, append(first.Ask("get "+plain), second.Ask("get "+plain)...))

	for _, args := range [][]string{nil, {"-key-secret", testkit.SecretFile(t, "another secret of keys\n")}} {
		other := start(args...)
		assert.Zero(t, counted(other))
		for _, noticed := range []*process{other, p, q} { // the earlier ones, too
			noticed.log.Await(t, "level=WARN", "has another key secret", "server="+first.Addr)
			noticed.log.Await(t, "level=WARN", "has another key secret", "server="+second.Addr)
			series, _ := scrape(t, noticed)
			assert.Equal(t, 2.0, series.take(t, "counterd_memcached_key_secret_mismatch"))
			assert.Equal(t, "reachable, another key secret in use", noticed.readiness(t)[first.Addr])
		}
		require.NoError(t, other.Process.Kill())
	}
	assert.NotContains(t, p.log.String()+q.log.String(), "sesame")
}

func TestKeySecretsThatCannotBe(t *testing.T) {
	short, empty := testkit.SecretFile(t, "fifteen-letters\nand another line"), testkit.SecretFile(t, "")
	for _, c := range []struct {
		args []string
		exit int
		says string
	}{
		{[]string{"-key-secret", short}, exitUsage, "-key-secret: no server is named"},
		{[]string{"-memcached", "127.0.0.1:1", "-key-secret", short}, exitFailed, "has 15 characters"},
		{[]string{"-memcached", "127.0.0.1:1", "-key-secret", empty}, exitFailed, "has 0 characters"},
		{[]string{"-memcached", "127.0.0.1:1", "-key-secret", "fifteen-letters-and-no-file"}, exitFailed, "no such file"},
		{[]string{"-memcached", "127.0.0.1:1", "-key-secret", t.TempDir()}, exitFailed, "-key-secret"},
		{[]string{"keys", "-event", "url_shorten", "-feature", "ip:203.0.113.9", "-key-secret", short}, exitFailed, "has 15 characters"},
	} {
		var stderr bytes.Buffer
		assert.Equal(t, c.exit, run(t.Context(), c.args, io.Discard, &stderr), "%q: %s", c.args, &stderr)
		assert.Contains(t, stderr.String(), c.says, "%q", c.args)
		assert.NotContains(t, stderr.String(), "fifteen-letters", "%q", c.args)
	}
	t.Setenv("COUNTERD_KEY_SECRET", short)
	s, err := parseServe([]string{"-memcached", "127.0.0.1:1"}, nil)
	require.NoError(t, err)
	assert.Equal(t, short, s.KeySecret)
}

// A secret that every user can read is warned of.
func TestAKeySecretForAll(t *testing.T) {
	file := testkit.SecretFile(t, "sesame-open-sesame")
	require.NoError(t, os.Chmod(file, 0o644))
	p := startProcess(t, "-memcached", "127.0.0.1:1", "-key-secret", file)
	assert.Regexp(t, `level=WARN msg="a file with a secret[^\n]*file=`+file+` mode=-rw-r--r--`, p.log.String())
	assert.NotContains(t, p.log.String(), "sesame-")
}
