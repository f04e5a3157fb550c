package counterd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/events"
)

// A value of rules made by a program that no rules file could have is an error, not another value.
func TestUnknownValuesAreErrors(t *testing.T) {
	for want, change := range map[string]func(*events.Rule){
		"on_error":  func(r *events.Rule) { r.OnError = 3 },
		"count":     func(r *events.Rule) { r.Count = 2 },
		"precision": func(r *events.Rule) { r.Precision = 3 },
		"throttle":  func(r *events.Rule) { r.Throttle.Kind = 200 },
		"algorithm": func(r *events.Rule) { r.Limits[0].Algorithm = "sliding" },
		"":          func(*events.Rule) {},
	} {
		rule := events.Rule{Per: []string{"user"}, Limits: []events.Limit{{Name: "l", N: 1, Window: time.Minute}}}
		change(&rule)
		rules := counterd.RulesOf(&events.Rules{Events: map[string]*events.Event{"api": {Name: "api", Rules: []events.Rule{rule}}}})
		l, err := counterd.New(rules)
		if want == "" {
			require.NoError(t, err)
			require.NoError(t, l.Close())
			continue
		}
		require.ErrorIs(t, err, counterd.ErrInvalid, want)
		assert.ErrorContains(t, err, want)
		known := start(t, parse(t, "events: {api: {limits: [{per: user, rate: 1/m}]}}"))
		require.ErrorIs(t, known.SetRules(rules), counterd.ErrInvalid)
	}
}
