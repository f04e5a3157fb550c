package api_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/storestest"
)

// A calendar's window is named by its unit in answers and by the seconds of the current one in
// headers. It holds what was stamped in it, also by a process behind whose clock it has turned, and
// frees at its turn. Counts and late increments are those of the buckets.
func TestAMonthOfACalendar(t *testing.T) {
	for _, algorithm := range []string{"fixed-window", "fixed-log"} {
		t.Run(algorithm, func(t *testing.T) {
			requireMonth(t, algorithm, "[{per: ip, rate: 3/month, calendar: Europe/Berlin, algorithm: "+algorithm+"}, {per: ip, rate: 9/m}]")
		})
	}
}

func requireMonth(t *testing.T, algorithm, limits string) {
	t.Helper()
	clock, servers := newLogServers(t, limits)
	clock.Set(time.Date(2026, 10, 31, 22, 59, 50, 0, time.UTC)) // ten seconds before November
	require.Equal(t, 200, hitAs(t, servers[0], "192.0.2.1").Code)
	w := request(t, servers[1], "POST", "/v1/events/e/increment", `{"features": {"ip": "192.0.2.1"}, "by": 1, "at": "2026-09-30T22:00:00Z"}`)
	require.Equal(t, 200, w.Code, "late, in the first second of October: %s", w.Body)
	w = request(t, servers[1], "POST", "/v1/events/e/increment", `{"features": {"ip": "192.0.2.1"}, "by": 5, "at": "2026-09-30T21:59:59Z"}`)
	require.Equal(t, 200, w.Code, "in September: %s", w.Body)
	clock.Advance(2 * time.Second)

	w = hitAs(t, servers[1], "192.0.2.1")
	d := decisionOf(t, w)
	require.True(t, d.Allowed, w.Body)
	assert.Equal(t, "month", d.Limits[0].Window)
	assert.Equal(t, algorithm, d.Limits[0].Algorithm)
	assert.Equal(t, "1m", d.Limits[1].Window)
	assert.Equal(t, `"ip-3-per-month";q=3;w=2682000, "ip-9-per-1m";q=9;w=60`, w.Header().Get("RateLimit-Policy"), "31 days and the hour of the autumn")
	require.EqualValues(t, 3, d.Limits[0].Count, "without those of September")

	for i := range 2 { // the second one from the cache
		w = hitAs(t, servers[0], "192.0.2.1")
		d = decisionOf(t, w)
		require.Equal(t, 429, w.Code, i)
		require.EqualValues(t, 8, *d.RetryAfter, "the turn")
		require.EqualValues(t, 8, *d.Limits[0].Reset)
		assert.Equal(t, "8", w.Header().Get("Retry-After"))
		assert.Contains(t, w.Header().Get("RateLimit"), `"ip-3-per-month";r=0;t=8`)
	}
	count := answer[wire.Count](t, request(t, servers[0], "GET", "/v1/events/e/count?feature=ip:192.0.2.1&window=31d", ""))
	assert.EqualValues(t, 2, count.Count, "an hour less than October")

	clock.Advance(8 * time.Second)
	w = hitAs(t, servers[1], "192.0.2.1")
	d = decisionOf(t, w)
	require.True(t, d.Allowed, w.Body)
	require.EqualValues(t, 1, d.Limits[0].Count, "November")
	assert.Contains(t, w.Header().Get("RateLimit-Policy"), "w=2592000")
	require.Equal(t, 204, request(t, servers[0], "DELETE", "/v1/events/e/counters?feature=ip:192.0.2.1", "").Code)
	require.EqualValues(t, 1, decisionOf(t, hitAs(t, servers[0], "192.0.2.1")).Limits[0].Count, "a reset forgets it")
	rules := answer[wire.Event](t, request(t, newLogServer(t, storestest.Embedded(testkit.NewClock(time.Time{}).Now), time.Now, limits), "GET", "/v1/events/e", ""))
	assert.Equal(t, wire.Limit{Name: "ip-3-per-month", Limit: 3, Window: "month", Algorithm: algorithm, Calendar: "Europe/Berlin"}, rules.Rules[0].Limits[0])
}

// Each key of a limit does with a calendar what it does without one.
func TestTheKeysOfALimitWithACalendar(t *testing.T) {
	const ann, bob, eve = "192.0.2.1", "10.0.0.1", "203.0.113.1"
	for name, test := range map[string]struct {
		limits string
		ips    []string
		denied int // of them, the last ones
		has    string
	}{
		"throttle":  {"[{per: ip, rate: 2/d, calendar: UTC, throttle: soft 50%}]", []string{ann, ann, ann}, 0, `"over":true`},
		"throttled": {"[{per: ip, rate: 2/d, calendar: UTC, throttle: soft 50%}]", []string{ann, ann, ann, ann}, 1, `"window":"day"`},
		"elastic":   {"[{per: ip, rate: 1/d, calendar: UTC, throttle: elastic}, {per: [], rate: 2/week, calendar: UTC}]", []string{ann, ann, ann}, 1, `"window":"week"`},
		"shadow":    {"[{per: ip, rate: 1/h, calendar: Asia/Kathmandu, shadow: true}]", []string{ann, ann}, 0, `"allowed":false,"shadow":true`},
		"overrides": {"[{per: ip, rate: 1/month, calendar: UTC, overrides: {10.0.0.1: [2/d, 9/h]}}]", []string{ann, bob, bob, bob}, 1, `"window":"hour"`},
		"allow":     {"[{per: ip, rate: 1/d, calendar: UTC, allow: 10.0.0.0/8}]", []string{bob, bob, bob}, 0, `"over":true`},
		"deny":      {"[{per: ip, rate: 1/d, calendar: UTC, deny: 203.0.113.0/24}]", []string{eve}, 1, `"reset":null`},
		"count all": {"[{per: ip, rate: 2/d, calendar: UTC, count: all}]", []string{ann, ann, ann, ann}, 2, `"count":4`},
		"precision": {"[{per: ip, rate: 2/d, calendar: Europe/Berlin, precision: hour}]", []string{ann, ann, ann}, 1, `"count":2`},
		"two zones": {"[{per: ip, rate: 9/d, calendar: Pacific/Apia, name: east}, {per: ip, rate: 2/d, calendar: Pacific/Pago_Pago, name: west}]", []string{ann, ann, ann}, 1, `"west"`},
		"soft log":  {"[{per: ip, rate: 2/d, calendar: UTC, algorithm: fixed-log, throttle: soft 50%}]", []string{ann, ann, ann}, 0, `"over":true`},
		"all log":   {"[{per: ip, rate: 2/d, calendar: UTC, algorithm: fixed-log, count: all}]", []string{ann, ann, ann, ann}, 2, `"count":4`},
		"shade log": {"[{per: ip, rate: 1/h, calendar: Asia/Kathmandu, algorithm: fixed-log, shadow: true}]", []string{ann, ann}, 0, `"allowed":false,"shadow":true`},
		"other log": {"[{per: ip, rate: 1/month, calendar: UTC, algorithm: fixed-log, overrides: {10.0.0.1: [2/d, 9/h]}}]", []string{ann, bob, bob, bob}, 1, `"window":"hour"`},
		"a log":     {"[{per: ip, rate: 2/d, calendar: UTC}, {per: ip, rate: 9/m, algorithm: sliding-log}]", []string{ann, ann, ann}, 1, `"algorithm":"sliding-log"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, servers := newLogServers(t, test.limits)
			for i, ip := range test.ips {
				w := hitAs(t, servers[i%2], ip)
				require.Equal(t, i < len(test.ips)-test.denied, w.Code == 200, "%d: %s", i, w.Body)
				if i == len(test.ips)-1 {
					require.Contains(t, w.Body.String(), test.has)
				}
			}
		})
	}
}
