package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/loadtest/child"
	"github.com/counterd/counterd/loadtest/migrate"
	"github.com/counterd/counterd/loadtest/rlsclient"
	load "github.com/counterd/counterd/loadtest/run"
)

const rlsRules = `
events:
  edge:
    limits:
      - {per: user, rate: [4/s, 10/3s, 60/m]}
      - {per: user, rate: 14/4s, algorithm: fixed-window}
      - {per: [ip, user], rate: 8/5s, algorithm: sliding-log}
  log: {limits: [{per: ip, rate: 2/h}]}
`

// startRLS runs a counterd with flags that serves Envoy's RateLimitService by the rules of a file, and returns its
// address and the file.
func startRLS(t *testing.T, rules string, flags ...string) (addr, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(file, []byte(rules), 0o600))
	server, err := child.Start(t.Context(), child.Program{
		Path: builtCounterd,
		Args: func(addr string) []string {
			return append([]string{"-listen", "127.0.0.1:0", "-rls", addr, "-rules", file, "-timeout", "1s"}, flags...)
		},
		Ready: func(addr string) error {
			client, err := rlsclient.New(rlsclient.Config{Addr: addr})
			if err != nil {
				return err
			}
			defer client.Close()
			_, err = client.Ask(t.Context(), rlsclient.NewRequest("edge", []string{"user"}, events.Features{"user": "ready"}, 0))
			return err
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Stop()) })
	return server.Addr, file
}

// Two processes of counterd on one Memcached server keep to the log.
func TestVerifyOverRLS(t *testing.T) {
	memcached := memcachedtest.Start(t)
	one, rules := startRLS(t, rlsRules, "-memcached", memcached.Addr)
	other, _ := startRLS(t, rlsRules, "-memcached", memcached.Addr)
	got := runWith(t, nil, "verify", "-rls", one+","+other, "-rules", rules, "-event", "edge", "-duration", "3s", "-rate", "300", "-timeout", "1s")
	require.Equal(t, exitOK, got.status, got.out+got.err)
	assert.Regexp(t, `\nviolations +none\n`, got.out)

	lower := filepath.Join(t.TempDir(), "lower.yaml")
	require.NoError(t, os.WriteFile(lower, []byte(strings.Replace(rlsRules, "4/s", "3/s", 1)), 0o600))
	got = runWith(t, nil, "verify", "-rls", one, "-rules", lower, "-event", "edge", "-duration", "1s", "-rate", "300")
	assert.Equal(t, exitFailed, got.status, "other rules than those of the target")
	assert.Contains(t, got.out, "WRONG  bodies: the limit is user-4-per-1s, 4/s, which the rules have not")

	got = runWith(t, nil, "verify", "-rls", "127.0.0.1:1", "-rules", rules, "-event", "edge")
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.err, "where the target speaks TLS, -ca names its authorities")
}

func TestRunOverRLS(t *testing.T) {
	addr, _ := startRLS(t, rlsRules)
	got := runWith(t, nil, "run", "-rls", addr, "-event", "edge", "-kind", "ip,user", "-population", "3", "-mix", "hit=3,check=1",
		"-rate", "200", "-duration", "1s", "-max-failures", "0", "-json")
	require.Equal(t, exitOK, got.status, got.err)
	var report load.Report
	require.NoError(t, json.Unmarshal([]byte(got.out), &report))
	assert.Equal(t, []string{addr}, report.Targets)
	assert.EqualValues(t, 200, report.Answered)
	assert.Positive(t, report.Hits.Admitted)
	assert.Positive(t, report.Hits.Denied)
	assert.Zero(t, report.Hits.OnError)
	assert.EqualValues(t, report.Hits.Admitted+report.Hits.Denied, report.Kinds["hit"].Requests)
	require.NotEmpty(t, report.Limits)
	for _, l := range report.Limits {
		assert.Regexp(t, "^(user|ip)-", l.Name)
	}
	for _, s := range report.Statuses {
		assert.Contains(t, []string{"OK", "OVER_LIMIT"}, s.Name)
	}
	got = runWith(t, nil, "run", "-rls", addr, "-event", "other", "-rate", "100", "-duration", "100ms")
	assert.Contains(t, got.out, "10 of these decided without a limit, or without the store", "no limit is named")
	got = runWith(t, nil, "run", "-rls", "127.0.0.1:1", "-duration", "100ms")
	assert.Equal(t, exitFailed, got.status)
}

// What differs is listed, of made-up requests and of a log, and makes the exit status 1.
func TestMigrate(t *testing.T) {
	from, _ := startRLS(t, rlsRules)
	to, _ := startRLS(t, strings.Replace(rlsRules, "2/h", "1/h", 1))
	got := runWith(t, strings.NewReader(log), "migrate", "-from", from, "-to", to, "-domain", "log", "-")
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.out, "\nrequests   4\nsame       2 admitted, 1 denied by both\nlimits     3 of the same verdict by different limits, such as 2/h and 1/h\ndifferent  1\n           1 × different limits: 2/h at -from, 1/h at -to\n")
	assert.Regexp(t, `\n\d .*, logged 2015-05-17 10:05:\d\d  ip=192.0.2.1  1     OK, 0 of 2/h +OVER_LIMIT, 0 of 1/h, reset in \d+s  different limits`, got.out)

	got = runWith(t, nil, "migrate", "-from", from, "-to", to, "-domain", "edge", "-kind", "user", "-requests", "50", "-json")
	require.Equal(t, exitOK, got.status, got.err)
	var report migrate.Report
	require.NoError(t, json.Unmarshal([]byte(got.out), &report))
	assert.EqualValues(t, 50, report.Admitted)

	got = runWith(t, nil, "migrate", "-from", from, "-to", to, "-domain", "edeg", "-requests", "5")
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.err, "nothing was compared: neither server has a limit")
	assert.Contains(t, got.out, "\nno limit   5 of these: neither has a limit for them\n")

	got = runWith(t, nil, "migrate", "-from", from, "-to", "127.0.0.1:1", "-domain", "edge")
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.err, "-to: ")
}
