//go:build testall

package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
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
	"github.com/counterd/counterd/internal/testkit/storestest"
)

// Answers say if a log that was too large has moved events.
func TestAnswersOfALogThatWasTooLarge(t *testing.T) {
	clock := testkit.NewClock(now)
	rules, err := rulesfile.Parse([]byte("events: {e: {limits: [{per: ip, rate: [9/s, 9/d], algorithm: sliding-log}, {per: user, rate: 9/d}]}}"))
	require.NoError(t, err)
	buckets := hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: storestest.Embedded(clock.Now), Clock: clock.Now})
	logs, err := eventlog.New(buckets.Base())
	require.NoError(t, err)
	h := newDescribed(api.ServerConfig{Service: newService(service.Config{
		Rules: func() *events.Rules { return rules }, Counters: counting.New(counting.Config{}, buckets, logs),
	})})
	increment := func(by, ago int64) {
		w := request(t, h, "POST", "/v1/events/e/increment", fmt.Sprintf(`{"features": {"ip": "203.0.113.9", "user": "42"}, "by": %d, "at": %d}`, by, now.Unix()-ago))
		require.Equal(t, http.StatusOK, w.Code)
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
	assert.EqualValues(t, 3500*500_000, answer[wire.Count](t, request(t, h, "GET", "/v1/events/e/count?feature=user:42&window=24h", "")).Count)
}

// An increment for which a log has no room is a 503 that says so.
func TestAnIncrementOfAFullLog(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	server := newLogServer(t, storestest.Embedded(clock.Now), clock.Now, "[{per: ip, rate: 5/h, algorithm: sliding-log}]")
	var w *httptest.ResponseRecorder
	for range 6000 { // of this moment: none of them can be merged
		if w = request(t, server, "POST", "/v1/events/e/increment", `{"features": {"ip": "192.0.2.1"}}`); w.Code != 200 {
			break
		}
	}
	require.Equal(t, 503, w.Code)
	require.Contains(t, w.Body.String(), `"detail":"A log of the counter is full: not all was counted.`)
}
