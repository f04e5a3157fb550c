package events

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Quadratic in these limits it would not end within the time that tests have.
func TestManyLimits(t *testing.T) {
	event := &Event{Name: "e"}
	for i := range 50_000 {
		event.Rules = append(event.Rules, Rule{Per: []string{fmt.Sprintf("k%d", i)}, Limits: []Limit{{N: 1, Window: time.Minute}}})
	}
	rules := &Rules{Events: map[string]*Event{"e": event}}
	for range 2 {
		rules = Succeed(rules, rules, 1_700_000_000)
	}
	_, err := rules.Events["e"].Apply(nil, Features{"ip": "203.0.113.9"})
	require.ErrorIs(t, err, ErrInvalid)
	assert.Regexp(t, "^no limit of e is per the features given: wanted are k0, or k1, or .*, or k15, or others$", err.Error())
}
