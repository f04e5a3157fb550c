package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
)

// Quadratic in these limits it would not end within the time that tests have.
func TestCostsOfManyLimits(t *testing.T) {
	event := &events.Event{Name: "e"}
	for i := range 200_000 {
		event.Rules = append(event.Rules, events.Rule{Per: []string{fmt.Sprintf("k%d", i)}, Limits: []events.Limit{{N: 1, Window: time.Minute}}})
	}
	require.NoError(t, printCosts(io.Discard, &events.Rules{Events: map[string]*events.Event{"e": event}}))
}

func TestValidateSaysWhatIsCountedAndWarns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(file, []byte("events:\n  notes:\n    methods: [POST, PUTT]\n    limits:\n      - {per: user, rate: 5/m}\n      - {per: user, rate: 9/m}\n"), 0o600))
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), []string{"validate", file}, &stdout, &stderr), "a warning is no fault")
	assert.True(t, strings.HasSuffix(stdout.String(), "\nnotes: authorize and the middleware count POST, PUTT only\n"), "%s", &stdout)
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
	costs, table, found := strings.Cut(stdout.String(), "\n\n")
	require.True(t, found)
	var levels []string
	for line := range strings.Lines(costs) {
		levels = append(levels, strings.Join(strings.Fields(line)[1:4], " "))
	}
	assert.Equal(t, []string{
		"PER RETENTION LEVELS", "user 1h second", "user 1h log", "(all) 1h second", "key 1h minute", "team 1h second", "org 1h second",
		"lot 1h second", "spot 1h log", "job 30s leases", "(each feature) 24h",
	}, levels)
	assert.Regexp(t, `a +spot +1h +log +1 +17352\n`, costs)
	assert.Regexp(t, `a +job +30s +leases +1 +17352\n`, costs)
	assert.NotContains(t, table, "job")
	var recommended []string
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		recommended = append(recommended, fields[1]+" "+fields[len(fields)-1])
	}
	assert.Equal(t, []string{
		"PER RECOMMENDED", "user sliding-log", "(all) sliding-window", "key sliding-window", "team sliding-window", "org fixed-log", "lot sliding-window", "spot sliding-log",
	}, recommended)
	assert.Regexp(t, `a +user +400 +44928 +4 +\d+ +2 +sliding-log\n`, table)
	assert.Regexp(t, `a +\(all\) +540000 +\d+ +\d +too large +- +sliding-window\n`, table)
}
