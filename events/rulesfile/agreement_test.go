package rulesfile

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// warningsOf returns the warnings of an event with those limits, a line each.
func warningsOf(t *testing.T, limits ...string) []string {
	t.Helper()
	rules, err := Parse([]byte("events: {e: {limits: [\n{" + strings.Join(limits, "},\n{") + "}]}}"))
	require.NoError(t, err, "%q", limits)
	var all []string
	for _, warning := range rules.Warnings {
		_, reason, _ := strings.Cut(warning.Error(), ": ")
		all = append(all, strings.TrimPrefix(reason, "events.e."))
	}
	return all
}

func TestLimitsThatNeverDecide(t *testing.T) {
	for _, test := range []struct {
		limits []string
		want   []string
	}{
		{[]string{"per: ip, rate: 5/m", "per: ip, rate: 9/m"}, []string{"limits[1].rate: 9/m never decides: 5/m in line 2 is at least as strict"}},
		{[]string{"per: ip, rate: 9/m", "per: ip, rate: 5/m"}, []string{"limits[0].rate: 9/m never decides: 5/m in line 3 is at least as strict"}},
		{[]string{"per: ip, rate: 5/m, name: a", "per: ip, rate: 5/m, name: b"}, []string{"limits[1].rate: 5/m never decides: 5/m in line 2 is at least as strict"}},
		{[]string{"per: ip, rate: [10/s, 5/m, 5/h, 100/d]"}, []string{
			"limits[0].rate[0]: 10/s never decides: 5/h in line 2 is at least as strict",
			"limits[0].rate[1]: 5/m never decides: 5/h in line 2 is at least as strict",
		}},
		{[]string{"per: [ip, user], rate: 5/h", "per: [user, ip], rate: 6/m"}, []string{"limits[1].rate: 6/m never decides: 5/h in line 2 is at least as strict"}},
		{[]string{"per: ip, rate: 5/m, throttle: soft 20%", "per: ip, rate: 6/m", "per: ip, rate: 7/m"}, []string{
			"limits[1].rate: 6/m never decides: 5/m in line 2 is at least as strict",
			"limits[2].rate: 7/m never decides: 5/m in line 2 is at least as strict",
		}},
		{[]string{"per: ip, rate: 5/m, throttle: soft 20%", "per: ip, rate: 5/m, name: b"}, []string{"limits[0].rate: 5/m never decides: 5/m in line 3 is at least as strict"}},
		{[]string{"per: ip, rate: 5/m", "per: ip, rate: 9/m, shadow: true"}, []string{"limits[1].rate: 9/m never decides: 5/m in line 2 is at least as strict"}},
		{[]string{"per: user, rate: 5/m, overrides: {a: [9/s, 8/m]}"}, []string{"limits[0].overrides[…][0]: 9/s never decides: 8/m in line 2 is at least as strict"}},
		{[]string{"per: user, rate: [9/s, 8/m], allow: a, overrides: {b: 1/s}"}, []string{"limits[0].rate[0]: 9/s never decides: 8/m in line 2 is at least as strict"}},

		{[]string{"per: ip, rate: 5/m", "per: ip, rate: 9/m, algorithm: fixed-window"}, []string{"limits[1].rate: 9/m never decides: 5/m in line 2 is at least as strict"}},
		{[]string{"per: ip, rate: 5/m, algorithm: sliding-log", "per: ip, rate: 9/m"}, []string{"limits[1].rate: 9/m never decides: 5/m in line 2 is at least as strict"}},
		{[]string{"per: ip, rate: 5/s", "per: ip, rate: 5/s, name: log, algorithm: sliding-log"}, nil},
		{[]string{"per: ip, rate: 5/m", "per: ip, rate: 5/m, name: log, algorithm: sliding-log, shadow: true"}, nil},

		{[]string{"per: ip, rate: 5/m, algorithm: fixed-window", "per: ip, rate: 9/m"}, nil},
		{[]string{"per: ip, rate: 5/h, algorithm: fixed-window", "per: ip, rate: 9/m"}, nil},
		{[]string{"per: ip, rate: 20/m, algorithm: fixed-log", "per: ip, rate: 30/m, algorithm: sliding-log"}, nil},
		{[]string{"per: ip, rate: 5/h, calendar: UTC, algorithm: fixed-log", "per: ip, rate: 9/h"}, nil},
		{[]string{"per: ip, rate: 5/90s, algorithm: fixed-window", "per: ip, rate: 9/m, algorithm: fixed-window"}, nil},
		{[]string{"per: ip, rate: [2/s, 5/m, 10/h, 100/d]"}, nil},
		{[]string{"per: ip, rate: 5/m", "per: user, rate: 9/m", "per: [ip, user], rate: 9/m", "per: [], rate: 9/m"}, nil},
		{[]string{"per: ip, rate: 5/m", "per: ip, rate: 9/h"}, nil}, // increments may fill the longer window
		{[]string{"per: ip, rate: 5/m, throttle: elastic", "per: ip, rate: 9/m", "per: [], rate: 100/m"}, nil},
		{[]string{"per: ip, rate: 5/m, shadow: true", "per: ip, rate: 9/m"}, nil},
		{[]string{"per: ip, rate: 5/m, on_error: deny", "per: ip, rate: 9/m"}, nil},
		{[]string{"per: ip, rate: 5/m, allow: 10.0.0.0/8", "per: ip, rate: 9/m"}, nil},
		{[]string{"per: ip, rate: 5/m, overrides: {10.0.0.1: 20/m}", "per: ip, rate: 9/m"}, nil},
	} {
		assert.Equal(t, test.want, append([]string(nil), warningsOf(t, test.limits...)...), "%q", test.limits)
	}
	for _, test := range []struct {
		limits []string
		want   []string
	}{
		{[]string{"per: ip, rate: [9/d, 90/month], calendar: Europe/Berlin"}, []string{"limits[0].calendar: a month is kept by the second: precision: hour has the same windows in far less memory"}},
		{[]string{"per: ip, rate: 9/month, calendar: Asia/Kathmandu"}, []string{"limits[0].calendar: a month is kept by the second: precision: minute has the same windows in far less memory"}},
		{[]string{"per: user, rate: 9/week, calendar: UTC, overrides: {a: 9/month}", "per: user, rate: 5/20m, algorithm: fixed-window"}, []string{"limits[0].calendar: a month is kept by the second: precision: minute has the same windows in far less memory"}},
		{[]string{"per: ip, rate: 9/month, calendar: UTC, precision: hour"}, nil},
		{[]string{"per: ip, rate: 9/month, calendar: UTC, precision: second"}, nil}, // it is meant
		{[]string{"per: ip, rate: 9/week, calendar: UTC"}, nil},
		{[]string{"per: ip, rate: 9/month, calendar: UTC", "per: ip, rate: 5/h"}, nil}, // whose windows a coarser precision rounds
		{[]string{"per: ip, rate: 9/month, calendar: UTC", "per: ip, rate: 5/30s, algorithm: fixed-window"}, nil},
	} {
		assert.Equal(t, test.want, append([]string(nil), warningsOf(t, test.limits...)...), "%q", test.limits)
	}
	data, err := os.ReadFile(exampleFile)
	require.NoError(t, err)
	rules, err := Parse(data)
	require.NoError(t, err)
	assert.Empty(t, rules.Warnings)
}
