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
	const limits = "[{per: ip, rate: 3/month, calendar: Europe/Berlin}, {per: ip, rate: 9/m}]"
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
	assert.Equal(t, "fixed-window", d.Limits[0].Algorithm)
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
	assert.Equal(t, wire.Limit{Name: "ip-3-per-month", Limit: 3, Window: "month", Algorithm: "fixed-window", Calendar: "Europe/Berlin"}, rules.Rules[0].Limits[0])
}
