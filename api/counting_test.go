package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/storestest"
)

// A counter that is kept as a log has no buckets in its answers.
func TestAnswersWithoutBuckets(t *testing.T) {
	h := newLogServer(t, storestest.Embedded(clock), clock, "[{per: ip, rate: [9/s, 9/d], algorithm: sliding-log}, {per: user, rate: 9/d}]")
	w := request(t, h, "POST", "/v1/events/e/increment", `{"features": {"ip": "203.0.113.9", "user": "42"}, "by": 3}`)
	require.Equal(t, http.StatusOK, w.Code)
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
}
