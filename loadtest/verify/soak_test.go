package verify_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/loadtest/verify"
)

func soakOf(own verify.Own) verify.Config {
	own.Counterd, own.Memcached = counterd, "memcached"
	config := verify.Config{Own: own, Soak: true, Duration: verify.MinSoak, Clients: 4, Features: 12, Seed: 1}
	return verify.Tolerant(config, time.Hour) // a busy machine is slow
}

// A server is killed and comes back, and nothing is wrong.
func TestASoak(t *testing.T) {
	t.Parallel()
	report, text := reportOf(t, soakOf(verify.Own{Servers: 3, Replicas: 2, Chaos: true}))
	require.True(t, report.OK(), text)
	assert.NotEmpty(t, report.Kills)
	assert.Positive(t, report.Admitted)
	assert.Positive(t, report.Denied)
	assert.Zero(t, report.Excused.Windows+report.Excused.LowCounts, text)
	require.NotNil(t, report.Soak)
	assert.Equal(t, 1, report.Soak.Loads)
	assert.Zero(t, report.Soak.SlowLoads)
	assert.Len(t, report.Soak.Heap, 2)
	assert.Len(t, report.Soak.GoroutinesBefore, 2)
	assert.Len(t, report.Soak.GoroutinesAfter, 2)
	assert.Positive(t, report.Soak.Slowest)
	assert.Contains(t, text, "in the first third")
	t.Logf("\n%s", text)
}

// Calls that are too slow in two loads are a violation; in one they are not.
func TestSlowCalls(t *testing.T) {
	t.Parallel()
	report, text := reportOf(t, verify.Tolerant(soakOf(verify.Own{Store: verify.Embedded}), 1-verify.OwnTimeout))
	assert.Equal(t, 2, report.Soak.Loads)
	assert.Equal(t, 2, report.Soak.SlowLoads)
	assert.Equal(t, 1, report.Wrong[verify.CheckProcesses], text)
	assert.Contains(t, text, "in 2 of 2 loads one took more than 1ns")
	assert.Contains(t, text, "too long in 2 of 2 loads")
	assert.GreaterOrEqual(t, report.Duration, 2*verify.MinSoak)
}

// A log that is full is judged, and the calls go on with a new one.
func TestOneLogAfterTheOther(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		target *target
		right  bool
	}{
		"right":                           {&target{}, true},
		"with a limit of the whole event": {&target{rules: wholeRules}, true},
		"wrong":                           {&target{readThenIncrement: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				config := against(c.target)
				report, rounds, err := verify.RunFor(t.Context(), config, 15*time.Second)
				require.NoError(t, err)
				assert.Equal(t, c.right, report.OK(), "%v", report.Violations)
				assert.Greater(t, rounds, 2)
				assert.Greater(t, report.Calls["hit"]+report.Calls["count"], 2*int64(config.MaxEvents))
				assert.False(t, report.LogFull)
				assert.Positive(t, report.Checked.Predictions)
			})
		})
	}
}
