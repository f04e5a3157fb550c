package rulesfile

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
)

func TestParseThrottle(t *testing.T) {
	for s, want := range map[string]events.Throttle{
		"hard": {}, "elastic": {Kind: events.Elastic}, "soft 10%": {Kind: events.Soft, Percent: 10}, "soft 1%": {Kind: events.Soft, Percent: 1}, "soft 1000%": {Kind: events.Soft, Percent: 1000},
	} {
		throttle, reason := parseThrottle(s)
		require.Empty(t, reason, s)
		assert.Equal(t, want, throttle)
		assert.Equal(t, s, throttle.String())
	}
	throttle, reason := parseThrottle("soft 10")
	assert.Empty(t, reason)
	assert.Equal(t, "soft 10%", throttle.String(), "the sign may be left out")
	for _, s := range []string{"", "soft", "soft10%", "soft 10 %", "soft %", "soft 0%", "soft 1001%", "soft +1%", "soft 2.5%", "soft 1%%", "hard 1%", "elastic 1%", "Soft 1%"} {
		_, reason := parseThrottle(s)
		assert.NotEmpty(t, reason, "%q", s)
	}
}
