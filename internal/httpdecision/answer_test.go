package httpdecision

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
)

// anyDecision returns a decision with up to three limits, each with any of what a
// limit may have.
func anyDecision(random *rand.Rand, by []events.Feature) events.Decision {
	flip := func() bool { return random.IntN(2) == 0 }
	wait := func() time.Duration {
		return []time.Duration{events.Never, 0, 1 * time.Second, 2 * time.Second, 86399_001 * time.Millisecond}[random.IntN(5)]
	}
	d := events.Decision{
		Allowed: flip(), Unavailable: flip(), At: time.Unix(random.Int64N(1e10), 0).UTC(), RetryAfter: wait(), MayFitAfter: time.Duration(random.IntN(2)) * time.Second,
		Limits: make([]events.LimitState, random.IntN(4)),
	}
	for i := range d.Limits {
		d.Limits[i] = events.LimitState{
			Name: fmt.Sprint("limit-", random.IntN(9)), Feature: by[random.IntN(len(by))], Limit: random.Int64N(100), Window: time.Duration(random.IntN(99)) * time.Minute,
			Count: random.Int64N(3), Exact: flip(), Unknown: flip(), Remaining: random.Int64N(100), Reset: wait(), Allowed: flip(),
			Shadow: flip(), Over: flip(), Incomplete: flip(), Failed: flip(), OnError: events.OnErrorLocal,
		}
	}
	return d
}

// Of the decision that was in a Response before, nothing is left in the next.
func TestAResponseIsAsGoodAsNew(t *testing.T) {
	rules, err := rulesfile.Parse([]byte("events: {e: {limits: [{per: ip, rate: 1/d}, {per: user, rate: 1/d}, {per: [], rate: 1/d}, {per: [ip, user], rate: 1/d}]}}"))
	require.NoError(t, err)
	event := rules.Events["e"]
	var by []events.Feature
	for _, features := range []events.Features{{"ip": "203.0.113.9"}, {"user": "42"}, nil, {"ip": "203.0.113.9", "user": "42"}} {
		counter, err := event.Counter(features)
		require.NoError(t, err)
		by = append(by, counter.Feature)
	}
	random := rand.New(rand.NewPCG(1, 2))
	var used Response
	for range 1000 {
		d := anyDecision(random, by)
		var fresh Response
		want, err := json.Marshal(fresh.denialOf(event.Name, d, 429))
		require.NoError(t, err)
		got, err := json.Marshal(used.denialOf(event.Name, d, 429))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
		for i, s := range d.Limits {
			require.Equal(t, s.Feature.String(), used.denial.Limits[i].Feature)
			require.Equal(t, s.Exact, used.denial.Limits[i].IsExact())
		}
	}
	assert.LessOrEqual(t, cap(used.seconds), 8, "it does not grow from one decision to the next")
}
