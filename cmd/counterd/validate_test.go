package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// cpuTime returns the CPU time of this process so far.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// No limit is like another one: what is computed for one is of no use for the next. It takes a tenth of this time.
func TestValidateTakesAMillisecondAnEvent(t *testing.T) {
	const number = 2000
	var rules strings.Builder
	rules.WriteString("events:\n")
	for i := range number {
		fmt.Fprintf(&rules, "  e%d: {limits: [{per: ip, rate: [%d/%ds, 900/d]}, {per: user, rate: %d/%dm, algorithm: sliding-log}]}\n", i, i+1, i+2, i%100+1, i%1000+2)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(file, []byte(rules.String()), 0o600))
	var stdout, stderr bytes.Buffer
	began := cpuTime(t)
	require.Equal(t, exitOK, run(t.Context(), []string{"validate", file}, &stdout, &stderr), "%s", &stderr)
	took := cpuTime(t) - began
	assert.Less(t, took, number*time.Millisecond)
	t.Log(took/number, "an event")
}

func TestValidateSaysWhatIsCountedAndWarns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(file, []byte("events:\n  notes:\n    methods: [POST, PUTT]\n    limits:\n      - {per: user, rate: 5/m}\n      - {per: user, rate: 9/m}\n"), 0o600))
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), []string{"validate", file}, &stdout, &stderr), "a warning is no fault")
	assert.True(t, strings.HasSuffix(stdout.String(), "\nnotes: authorize and the middleware count POST, PUTT only\nok\n"), "%s", &stdout)
	warning := "counterd: warning: " + file + ": line "
	assert.Equal(t,
		warning+"3, column 21: events.notes.methods[1]: this is none of the usual methods: PUT may be meant\n"+
			warning+"6, column 27: events.notes.limits[1].rate: 9/m never decides: 5/m in line 5 is at least as strict\n",
		stderr.String())
}

// Each counter is compared in buckets and in a log. What a log cannot do stays in buckets.
func TestValidateComparesBucketsAndLogs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`events:
  a:
    limits:
      - {per: user, rate: 500/h}
      - {per: user, rate: 400/h, algorithm: sliding-log}
      - {per: [], rate: 9000/m}
      - {per: key, rate: 90/h, precision: minute}
      - {per: team, rate: 90/h, count: all}
      - {per: org, rate: 90/h, algorithm: fixed-window}
      - {per: lot, rate: 90/h, throttle: elastic}
      - {per: spot, rate: 90/h, algorithm: sliding-log}
      - {per: job, concurrent: 1, lease: 30s}
  b:
`), 0o600))
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), []string{"validate", file}, &stdout, &stderr), "%s", &stderr)
	var rows []string
	for line := range strings.Lines(stdout.String()) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	assert.Equal(t, []string{
		"EVENT PER FULL AT ALGORITHM MEMORY RECOMMENDED",
		"a user 400 in 1h sliding-window,sliding-log 52032 B sliding-log, 7104 B",
		"a (all) 540000 in 1h sliding-window 352608 B -",
		"a key 90 in 1h sliding-window 6432 B -",
		"a team 90 in 1h sliding-window 15168 B -",
		"a org 90 in 1h fixed-window 15168 B -",
		"a lot 90 in 1h sliding-window 15168 B -",
		"a spot 90 in 1h sliding-log 1856 B -",
		"a job 1 at once concurrency 240 B -",
		"b (each feature) - sliding-window 8436480 B -",
		"ok",
	}, rows)
}

// A counter that takes more than 1 MB is warned of, with the change that makes it small.
func TestValidateWarnsOfLargeCounters(t *testing.T) {
	for rule, want := range map[string]string{
		"{per: ip, rate: 100/d}":                                     "",
		"{per: ip, rate: 100000/d}":                                  "8.44 MB of Memcached; with precision: minute it takes 142 kB",
		"{per: ip, rate: [100000/m, 5000000/month]}":                 "253 MB of Memcached; with an event of their own for the limits of 720h, in the coarsest precision, it takes 79.3 kB",
		"{per: ip, rate: 100000/m}, {per: user, rate: 90/month}":     "253 MB of Memcached; with an event of their own for the limits of 720h, in the coarsest precision, it takes 6.72 kB",
		"{per: ip, rate: 1000/d, algorithm: sliding-log}":            "",
		"{per: user, rate: [20000/d, 100000/week], precision: hour}": "",
	} {
		file := filepath.Join(t.TempDir(), "rules.yaml")
		require.NoError(t, os.WriteFile(file, []byte("events:\n  a:\n    limits: ["+rule+"]\n"), 0o600))
		var stdout, stderr bytes.Buffer
		run(t.Context(), []string{"validate", file}, &stdout, &stderr)
		if want != "" {
			want = "counterd: warning: " + file + ": line 3: events.a.limits[0]: a full counter takes " + want + "\n"
		}
		assert.Equal(t, want, stderr.String(), rule)
	}
}
