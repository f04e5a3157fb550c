package contract

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/wire"
)

// Of a denied hit that another limit counts, that one says when there is room for it again, by its count: in a log also
// for what came behind the hit, and of windows that follow one another by a turn.
func TestRoomForADeniedHitThatIsCounted(t *testing.T) {
	for name, c := range map[string]struct {
		algorithm    string
		count, reset int64 // of 3 in 10 seconds
		bound        bool  // the count is one
		right        bool
	}{
		"a wait with room":               {"", 2, 4, false, false},
		"none, and no wait":              {"", 3, 0, false, false},
		"fixed, and the turn":            {"fixed-window", 3, 7, false, true},
		"in a log, and what came behind": {"sliding-log", 2, 4, false, true},
		"in a log, and no wait":          {"sliding-log", 3, 0, false, false},
		"a bucket, and no wait":          {"token-bucket", 3, 0, false, false},
	} {
		counts := wire.Limit{Name: "user", Limit: 3, Window: "10s", Algorithm: c.algorithm}
		if c.algorithm == "token-bucket" {
			counts.Burst = 3
		}
		event, err := New(wire.Event{Name: "e", Retention: "1h", Rules: []wire.Rule{
			{Per: []string{"user"}, Limits: []wire.Limit{counts}, Precision: "second", Count: "all"},
			{Per: []string{"ip"}, Limits: []wire.Limit{{Name: "ip", Limit: 1, Window: "10s"}}, Precision: "second"},
		}})
		require.NoError(t, err)
		five, longest, exact := int64(5), max(c.reset, 5), !c.bound
		faults := event.DecisionFaults(Asked{Cost: 1, Counters: []string{"u", "i"}}, http.StatusTooManyRequests, wire.Decision{
			Event: "e", At: wire.Moment{Time: time.Unix(1_000_003, 0)}, RetryAfter: &longest, Limits: []wire.LimitState{
				{Name: "user", Feature: "u", Limit: 3, Window: "10s", Algorithm: c.algorithm, Count: c.count, Remaining: 3 - c.count, Allowed: true, Reset: &c.reset, Exact: &exact},
				{Name: "ip", Feature: "i", Limit: 1, Window: "10s", Count: 1, Reset: &five},
			},
		})
		assert.Equal(t, c.right, len(faults) == 0, "%s: %v", name, faults)
	}
}
