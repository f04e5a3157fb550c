package run_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/loadtest/run"
)

// The generator is blamed where its lateness makes the p99, and not where that is the wait
// for a place in flight.
func TestWhoIsBlamedForTheP99(t *testing.T) {
	blames := func(waited int64) bool {
		report := &run.Report{
			Latency: run.Latency{Requests: 1000, P99: 3000}, Late: run.Latency{Requests: 1000 - waited, P99: 2000},
			Waited: run.Latency{Requests: waited, P99: 3000},
		}
		var text strings.Builder
		require.NoError(t, report.WriteText(&text))
		return strings.Contains(text.String(), "own lateness")
	}
	assert.True(t, blames(0))
	assert.True(t, blames(10))
	assert.False(t, blames(11))
	assert.False(t, blames(900))
}
