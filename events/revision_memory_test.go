package events_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
)

// Rules from memory differ by their content. The version that takes over is newer.
func TestRevisionsOfRulesFromMemory(t *testing.T) {
	five, six := parsedLimits(t, "[{per: ip, rate: 5/m}]"), parsedLimits(t, "[{per: ip, rate: 6/m}]")
	assert.Equal(t, five.Revision, parsedLimits(t, "[{per: ip, rate: 5/m}]").Revision)
	require.NotEqual(t, five.Revision, six.Revision)
	there := events.Succeed(five, six, 0)
	back := events.Succeed(there, five, 0)
	assert.Greater(t, max(there.Revision, back.Revision), five.Revision)
	assert.Greater(t, back.Revision, there.Revision)
	assert.Equal(t, back.Revision, back.Events["e"].Rules[0].Revision)
	assert.Equal(t, six.Revision, six.Events["e"].Rules[0].Revision, "neither is changed")

	made := func(n int64) *events.Rules {
		return &events.Rules{Events: map[string]*events.Event{"e": {Name: "e", Rules: []events.Rule{{Per: []string{"ip"}, Limits: []events.Limit{{N: n, Window: time.Minute}}}}}}}
	}
	assert.Equal(t, made(5).Hashed().Revision, made(5).Hashed().Revision)
	assert.NotEqual(t, made(5).Hashed().Revision, made(6).Hashed().Revision)
	by := made(5)
	assert.NotZero(t, by.Hashed().Events["e"].Rules[0].Revision)
	assert.Zero(t, by.Events["e"].Rules[0].Revision)
	assert.Same(t, five, five.Hashed())
}
