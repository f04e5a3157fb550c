package events

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Of the past no more is kept than what still hurts a limit.
func TestThePastThatIsKeptIsBounded(t *testing.T) {
	var rules *Rules
	most := 0
	for i := range int64(3000) {
		retention := 1 + (i*7919)%300
		next := &Rules{Events: map[string]*Event{"e": {Name: "e", Retention: time.Duration(retention) * time.Hour, Rules: []Rule{
			{Per: []string{"ip"}, Limits: []Limit{{N: 5, Window: time.Hour}}, Precision: []Precision{Second, Minute, Hour}[i%3]},
		}}}}
		if rules != nil {
			next = Succeed(rules, next, 1_700_000_000+i*600)
		}
		rules = next
		most = max(most, len(rules.Events["e"].kept["ip"].lapses))
	}
	assert.Positive(t, most)
	assert.Less(t, most, 30)
}
