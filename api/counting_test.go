package api_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/memcache"
)

// A counter that is kept as a log has no buckets in its answers, and says if a log that was too large
// has moved events.
func TestAnswersWithoutBuckets(t *testing.T) {
	rules, err := rulesfile.Parse([]byte("events: {e: {limits: [{per: ip, rate: [9/s, 9/d]}, {per: user, rate: 9/d}]}}"))
	require.NoError(t, err)
	ip := &rules.Events["e"].Rules[0]
	for i := range ip.Limits {
		ip.Limits[i].Algorithm = eventlog.Algorithm
	}
	clock := testkit.NewClock(now)
	buckets := hierarchy.NewCounters(hierarchy.Config{Store: memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock.Now}), Clock: clock.Now})
	logs, err := eventlog.New(buckets.Base())
	require.NoError(t, err)
	h := newDescribed(api.ServerConfig{Service: newService(service.Config{
		Rules: func() *events.Rules { return rules }, Counters: counting.New(counting.Config{}, buckets, logs),
	})})
	increment := func(by, ago int64) {
		w := request(t, h, "POST", "/v1/events/e/increment", fmt.Sprintf(`{"features": {"ip": "203.0.113.9", "user": "42"}, "by": %d, "at": %d}`, by, now.Unix()-ago))
		require.Equal(t, http.StatusOK, w.Code)
	}
	increment(3, 0)
	get := func(path string) string { return request(t, h, "GET", "/v1/events/e/"+path, "").Body.String() }
	assert.JSONEq(t, `{"event": "e", "feature": "ip:203.0.113.9", "window": "24h",
		"from": "2026-03-13T23:30:34Z", "to": "2026-03-14T23:30:33Z", "count": 3}`, get("count?feature=ip:203.0.113.9&window=24h"))
	assert.JSONEq(t, `{"event": "e", "feature": "user:42", "window": "1s",
		"from": "2026-03-14T23:30:33Z", "to": "2026-03-14T23:30:33Z", "count": 3,
		"buckets": {"second": 1, "minute": 0, "hour": 0, "total": 1}}`, get("count?feature=user:42&window=1s"))
	assert.JSONEq(t, `{"event": "e", "feature": "ip:203.0.113.9", "window": "1s",
		"from": "2026-03-14T23:30:33Z", "to": "2026-03-14T23:30:33Z", "count": 3}`, get("count?feature=ip:203.0.113.9&window=1s&at=2026-03-14T23:30:33Z"))
	assert.JSONEq(t, `{"event": "e", "feature": "ip:203.0.113.9", "window": "1s",
		"from": "2026-03-14T23:30:32Z", "to": "2026-03-14T23:30:33Z", "count": 3}`, get("count?feature=ip:203.0.113.9&window=1s"),
		"it begins a millisecond later than a second ago")
	assert.JSONEq(t, `{"event": "e", "feature": "ip:203.0.113.9", "level": "day",
		"from": "2026-03-14T00:00:00Z", "to": "2026-03-14T23:59:59Z", "buckets": [{"start": "2026-03-14T00:00:00Z", "count": 3}]}`,
		get("history?feature=ip:203.0.113.9&level=day&from=2026-03-14T12:00:00Z"))
	if bubble.RaceDetector { // one goroutine goes on for minutes
		return
	}
	for i := range int64(3500) {
		increment(500_000, 60+20*i)
		clock.Advance(20 * time.Millisecond) // only events without an identity are moved
	}
	count := answer[wire.Count](t, request(t, h, "GET", "/v1/events/e/count?feature=ip:203.0.113.9&window=90m", ""))
	require.NotNil(t, count.Exact)
	assert.False(t, *count.Exact)
	history := answer[wire.History](t, request(t, h, "GET", "/v1/events/e/history?feature=ip:203.0.113.9&level=minute", ""))
	require.NotNil(t, history.Exact)
	assert.False(t, *history.Exact)
	assert.Nil(t, answer[wire.Count](t, request(t, h, "GET", "/v1/events/e/count?feature=user:42&window=90m", "")).Exact)
	require.Equal(t, http.StatusNoContent, request(t, h, "DELETE", "/v1/events/e/counters?feature=ip:203.0.113.9", "").Code)
	assert.Zero(t, answer[wire.Count](t, request(t, h, "GET", "/v1/events/e/count?feature=ip:203.0.113.9&window=90m", "")).Count)
	assert.EqualValues(t, 3+3500*500_000, answer[wire.Count](t, request(t, h, "GET", "/v1/events/e/count?feature=user:42&window=24h", "")).Count)
}
