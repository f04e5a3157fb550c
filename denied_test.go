package counterd_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/internal/testkit/bubble"
)

const deniedRules = `events:
  window:      {limits: [{per: user, rate: 3/1h}, {per: [], rate: 5/1h}]}
  log:         {limits: [{per: user, rate: 3/1h, algorithm: sliding-log}]}
  bucket:      {limits: [{per: user, rate: 1/h, burst: 3}]}
  queue:       {limits: [{per: user, rate: 1/h, queue: 2}]}
  lease:       {limits: [{per: user, concurrent: 3, lease: 2m}]}
  counted_all: {limits: [{per: user, rate: 3/1h, count: all}]}
`

// deniedOf returns how many hits of a counter were denied, by the HTTP interface.
func deniedOf(t *testing.T, l *counterd.Limiter, event, feature string) (sum int64) {
	t.Helper()
	w := httptest.NewRecorder()
	target := fmt.Sprintf("/v1/events/%s/history?level=minute&outcome=denied%s", event, feature)
	handlerOf(l).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, target, nil))
	require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
	var history wire.History
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &history))
	for _, bucket := range history.Buckets {
		sum += bucket.Count
	}
	return sum
}

// What any limit denies is in the history within two seconds; reservations and leases that are settled are not.
func TestTheHistoryOfDeniedHits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := start(t, parse(t, deniedRules))
		for _, event := range []string{"window", "log", "bucket", "queue", "lease", "counted_all"} {
			reserved, err := l.Reserve(ctx, event, bob, 1, time.Minute)
			require.NoError(t, err)
			require.True(t, reserved.Allowed, event)
			for i := range 102 {
				d, err := l.Hit(ctx, event, bob)
				require.NoError(t, err)
				require.Equal(t, i < 2, d.Allowed, "%s %d", event, i)
			}
			_, err = l.Check(ctx, event, bob)
			require.NoError(t, err)
			require.NoError(t, l.Settle(ctx, reserved.Reservation, 1))
			time.Sleep(2 * time.Second)
			assert.Equal(t, int64(100), deniedOf(t, l, event, "&feature=user:bob"), event)
		}
		assert.Zero(t, deniedOf(t, l, "window", ""), "the limit of all had room")
		for range 3 {
			_, err := l.Hit(ctx, "window", counterd.Features{"user": "eve"})
			require.NoError(t, err)
		}
		time.Sleep(2 * time.Second)
		assert.Equal(t, int64(1), deniedOf(t, l, "window", ""))
		assert.Zero(t, deniedOf(t, l, "window", "&feature=user:eve"))
	})
}
