package events

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Of the past no more is kept than what still hurts a limit.
func TestThePastThatIsKeptIsBounded(t *testing.T) {
	var rules *Rules
	most := 0
	for i := range int64(3000) {
		retention := 1 + (i*7919)%300
		precision := []string{"second", "minute", "hour"}[i%3]
		next, err := ParseRules(fmt.Appendf(nil, "events: {e: {retention: %dh, limits: [{per: ip, rate: 5/h, precision: %s}]}}", retention, precision))
		require.NoError(t, err)
		if rules != nil {
			next = Succeed(rules, next, 1_700_000_000+i*600)
		}
		rules = next
		most = max(most, len(rules.Events["e"].kept["ip"].lapses))
	}
	assert.Positive(t, most)
	assert.Less(t, most, 30)
}
