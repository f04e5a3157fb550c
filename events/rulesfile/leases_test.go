package rulesfile

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
)

func TestLeases(t *testing.T) {
	rules, err := Parse([]byte(`events:
  api:
    limits:
      - {per: user, rate: 10/m, count: all}
      - {per: user, concurrent: 3, lease: 30s, overrides: {bob: 10}, throttle: soft 100%, allow: [eve], deny: [mallory], on_error: deny}
      - {per: user, concurrent: 2, lease: 30s, shadow: true, name: trial}
      - {per: [], algorithm: concurrency, concurrent: 200, lease: 15m}
`))
	require.NoError(t, err)
	assert.Empty(t, rules.Warnings)
	assert.True(t, rules.HasLeases())
	event, err := rules.Event("api")
	require.NoError(t, err)
	assert.Equal(t, time.Minute, event.Remembered(), "leases are not kept")
	lease := events.Limit{Name: "user-3-concurrent", Series: "user-concurrent", N: 3, Window: 30 * time.Second, Algorithm: "concurrency"}
	assert.Equal(t, []events.Limit{lease}, event.Rules[1].Limits)
	lease.Name, lease.N = "user-10-concurrent", 10
	assert.Equal(t, []events.Limit{lease}, event.Rules[1].Overrides["bob"])
	assert.Equal(t, "trial", event.Rules[2].Limits[0].Name)
	assert.Equal(t, "all-200-concurrent", event.Rules[3].Limits[0].Name)
}

func TestFaultsOfLeases(t *testing.T) {
	for limit, want := range map[string]string{
		"per: user, concurrent: 3":                                                                   "line 1, column 23: events.e.limits[0]: lease is missing",
		"per: user, lease: 30s":                                                                      "concurrent is missing",
		"per: user, algorithm: concurrency, rate: 3/m":                                               "has no rate",
		"per: user, algorithm: sliding-log, concurrent: 3, lease: 30s":                               "leave the algorithm out",
		"per: user, concurrent: 3, lease: 2d":                                                        "a lease is at most 24h",
		"per: user, concurrent: 3, lease: 0s":                                                        "a lease: ",
		"per: user, concurrent: -1, lease: 30s":                                                      "it is a whole number from 0 to 1000",
		"per: user, concurrent: 900, lease: 30s":                                                     "take fewer",
		"per: user, concurrent: 3, lease: 30s, precision: minute":                                    "a concurrency has no precision",
		"per: user, concurrent: 3, lease: 30s, throttle: elastic":                                    "elastic asks another counter",
		"per: user, concurrent: 3, lease: 30s, count: all":                                           "takes no lease",
		"per: user, concurrent: 3, lease: 30s, on_error: local":                                      "make it allow or deny",
		"per: user, concurrent: 3, lease: 30s, overrides: {a: 5/m}":                                  "it is a whole number",
		"per: user, concurrent: 3, lease: 30s}, {per: user, concurrent: 2, lease: 60s, shadow: true": "it differs from the limit in line 1",
	} {
		_, err := Parse(fmt.Appendf(nil, "events: {e: {limits: [{%s}]}}", limit))
		assert.ErrorContains(t, err, want, limit)
	}
}
