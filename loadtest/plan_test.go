package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/loadtest/plan"
)

const planRules = "events: {hit: {limits: [{per: ip, rate: [100/m, 1000/d]}]}}"

func TestPlan(t *testing.T) {
	rules := rulesFile(t, planRules)
	got := runWith(t, nil, "plan", "-rules", rules, "-features-a-day", "1e6", "-events-a-day", "2e7")
	require.Equal(t, exitOK, got.status, got.err)
	assert.Empty(t, got.err)
	assert.Contains(t, got.out, "Memcached servers: ")

	got = runWith(t, nil, "plan", "-rules", rules, "-features-a-day", "1e6", "-events-a-day", "2e7", "-replicas", "1", "-json")
	require.Equal(t, exitOK, got.status, got.err)
	var report plan.Report
	require.NoError(t, json.Unmarshal([]byte(got.out), &report, json.RejectUnknownMembers(true)))
	assert.Equal(t, 1, report.Replicas)
	assert.InEpsilon(t, 2e7/86400, report.Total.Average.Hits, 1e-9)
	assert.NotEmpty(t, report.Assumptions)
}

func TestPlanFromALog(t *testing.T) {
	rules := rulesFile(t, planRules)
	got := runWith(t, strings.NewReader(log), "plan", "-rules", rules, "-replicas", "1", "-json", "-")
	require.Equal(t, exitOK, got.status, got.err)
	assert.Equal(t, "loadtest: 1 malformed lines: 2; 1: feature of kind \"ip\": the value is not an IP address\n", got.err)
	var report plan.Report
	require.NoError(t, json.Unmarshal([]byte(got.out), &report, json.RejectUnknownMembers(true)))
	assert.Equal(t, 4, report.Log.Hits)
	// Two days after the first event its day is left; two addresses have come since, and one
	// of them in two seconds of one minute.
	assert.EqualValues(t, 1+2*4+1, report.Total.Items)

	got = runWith(t, nil, "plan", "-rules", rules, filepath.Join(t.TempDir(), "nothing.log"))
	assert.Equal(t, exitFailed, got.status)
	assert.Contains(t, got.err, "nothing.log")
}
