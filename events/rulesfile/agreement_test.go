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
		{[]string{"per: ip, rate: 20/m, algorithm: fixed-window", "per: ip, rate: 30/m, algorithm: sliding-log"}, nil},
		{[]string{"per: ip, rate: 5/h, calendar: UTC", "per: ip, rate: 9/h"}, nil},
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

// Each key has an effect, or is warned of.
func TestSettingsWithoutEffect(t *testing.T) {
	for _, test := range []struct {
		event string
		want  []string
	}{
		{"limits: [{per: user, rate: 5/m, allow: [10.0.0.0/8, 192.0.2.1, ada], deny: ['2001:db8::/32', a/8]}]", []string{
			"limits[0].allow[0]: a network is compared as text here, since per names no ip: count per ip, or list the values",
			"limits[0].deny[0]: a network is compared as text here, since per names no ip: count per ip, or list the values",
		}},
		{"limits: [{per: [ip, user], rate: 5/m, allow: [10.0.0.0/8, ada]}]", nil},
		{"limits: [{per: ip, rate: [5/m, 9/h], throttle: soft 10%}]", []string{"limits[0].throttle: soft 10% admits no more than hard: it is less than one event of 9"}},
		{"limits: [{per: ip, rate: [5/m, 10/h], throttle: soft 10%}]", nil},
		{"limits: [{per: user, rate: 5/m, throttle: soft 10%, overrides: {a: 20/m}}]", nil},
		{"limits: [{per: user, rate: 5/m, burst: 3, throttle: soft 20%}]", []string{"limits[0].throttle: soft 20% admits no more than hard: it is less than one event of 3"}},
		{"limits: [{per: user, rate: 5/m, allow: a, deny: b, overrides: {a: 1/m, b: 2/m, c: 3/m}}]", []string{
			"limits[0].overrides[…]: the value is in allow: its rates never decide",
			"limits[0].overrides[…]: the value is in deny: its rates never decide",
		}},
		{"limits: [{per: ip, rate: 5/m, allow: 10.0.0.0/8, overrides: {10.0.0.1: 1/m, 192.0.2.1: 2/m}}]", []string{
			"limits[0].overrides[…]: the value is in allow: its rates never decide",
		}},
		{"{from: {ip: peer, user: bearer, org: header X-Org}, limits: [{per: ip, rate: 5/m}, {per: [], rate: 90/m}]}", []string{
			"from.user: no limit is per user: requests are not asked for it",
			"from.org: no limit is per org: requests are not asked for it",
		}},
		{"{from: {ip: peer}, methods: [POST]}", []string{
			"from.ip: no limit is per ip: requests are not asked for it",
			"methods: the event has no limits: no request is a hit",
		}},
		{"{retention: 7d, limits: [{per: ip, rate: 5/m, burst: 5}, {per: ip, concurrent: 3, lease: 9s}]}", []string{
			"retention: the counters of these limits keep no events: it is for other features alone",
		}},
		{"{retention: 7d, limits: [{per: ip, rate: 5/m, burst: 5}, {per: ip, rate: 90/h}]}", nil},
		{"{retention: 7d}", nil},
	} {
		if !strings.HasPrefix(test.event, "{") {
			test.event = "{" + test.event + "}"
		}
		rules, err := Parse([]byte("events: {e: " + test.event + "}"))
		require.NoError(t, err, test.event)
		var got []string
		for _, warning := range rules.Warnings {
			_, reason, _ := strings.Cut(warning.Error(), ": ")
			got = append(got, strings.TrimPrefix(reason, "events.e."))
		}
		assert.Equal(t, test.want, got, test.event)
	}
}
