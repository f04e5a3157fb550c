package rulesfile

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
)

// Rules with fixed-log count by fixed-window, with a calendar too, and a warning at their line says what to write.
func TestFixedLogIsFixedWindow(t *testing.T) {
	for _, calendar := range []string{"", "calendar: Asia/Kathmandu, "} {
		rules, err := Parse([]byte("events:\n  e:\n    limits:\n      - {per: ip, rate: 5/h, " + calendar + "precision: minute, algorithm: fixed-log}\n"))
		require.NoError(t, err)
		limit := rules.Events["e"].Rules[0].Limits[0]
		assert.Equal(t, events.FixedWindow, limit.Algorithm)
		assert.Equal(t, calendar != "", limit.Calendar != nil)
		require.Len(t, rules.Warnings, 1)
		assert.Equal(t, 4, rules.Warnings[0].Line)
		assert.ErrorContains(t, rules.Warnings[0], "events.e.limits[0].algorithm: fixed-log is fixed-window, in buckets: write algorithm: fixed-window")
	}
}
