package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/httpdecision"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/storestest"
	"github.com/counterd/counterd/memcache"
)

const logGrace = 40 * time.Second

// newLogServer returns a server of the event e with those limits, on both engines.
func newLogServer(t *testing.T, kept store.Store, clock func() time.Time, limits string) http.Handler {
	t.Helper()
	rules, err := rulesfile.Parse([]byte("events: {e: {limits: " + limits + "}}"))
	require.NoError(t, err)
	return newServerOf(t, kept, clock, func() *events.Rules { return rules })
}

// newServerOf returns a server with rules that may change, on both engines.
func newServerOf(t *testing.T, kept store.Store, clock func() time.Time, rules func() *events.Rules) http.Handler {
	t.Helper()
	return newDescribed(api.ServerConfig{Service: newServiceOf(t, kept, clock, rules)})
}

// newServiceOf returns a service by those rules, on both engines.
func newServiceOf(t *testing.T, kept store.Store, clock func() time.Time, rules func() *events.Rules) *service.Service {
	t.Helper()
	counters := hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: kept, Clock: clock, Grace: logGrace})
	logs, err := eventlog.New(counters.Base())
	require.NoError(t, err)
	local := hierarchy.NewCounters(hierarchy.Config{CacheBytes: -1, Store: memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock}), Clock: clock, Grace: logGrace})
	localLogs, err := eventlog.New(local.Base())
	require.NoError(t, err)
	config := limiter.Config{Timeout: logGrace / 2, Local: []limiter.Engine{local, localLogs}}
	decider, err := limiter.New(config, counters, logs)
	require.NoError(t, err)
	return newService(service.Config{Rules: rules, Counters: counting.New(counting.Config{}, counters, logs), Limiter: decider})
}

// newLogServers returns a clock and two servers on one store.
func newLogServers(t *testing.T, limits string) (*testkit.Clock, [2]http.Handler) {
	t.Helper()
	clock := testkit.NewClock(time.Time{})
	kept := storestest.Embedded(clock.Now)
	return clock, [2]http.Handler{newLogServer(t, kept, clock.Now, limits), newLogServer(t, kept, clock.Now, limits)}
}

// decisionOf returns the decision of an answer.
func decisionOf(t *testing.T, w *httptest.ResponseRecorder) (d wire.Denial) {
	t.Helper()
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &d), w.Body)
	return d
}

func hitAs(t *testing.T, h http.Handler, ip string) *httptest.ResponseRecorder {
	t.Helper()
	return request(t, h, "POST", "/v1/events/e/hit", fmt.Sprintf(`{"features": {"ip": %q}}`, ip))
}

// The procedure of operations.md changes the algorithm of a limit, and changes it back, while one of two processes
// reloads a day after the other: no window holds more than N, and what decides is never incomplete.
func TestTheAlgorithmOfALimitIsChanged(t *testing.T) {
	page, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "### Change the algorithm of a limit")
	section, _, _ = strings.Cut(section, "\n### ")
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(section, -1)
	require.Len(t, blocks, 2)
	shadow, log := blocks[0][1], blocks[1][1]
	buckets := strings.Replace(log, ", algorithm: sliding-log", "", 1)
	back := strings.Replace(strings.Replace(shadow, ", name: log, algorithm: sliding-log", ", name: buckets", 1), "20/d]}", "20/d], algorithm: sliding-log}", 1)
	enforced := func(file string) string { return strings.Replace(file, ", shadow: true", "", 1) }

	clock := testkit.NewClock(time.Time{})
	kept := storestest.Embedded(clock.Now)
	var rules [2]atomic.Pointer[events.Rules]
	servers := [2]http.Handler{newServerOf(t, kept, clock.Now, rules[0].Load), newServerOf(t, kept, clock.Now, rules[1].Load)}
	reload := func(process int, file string) {
		parsed, err := rulesfile.Parse([]byte(file))
		require.NoError(t, err, file)
		if before := rules[process].Load(); before != nil {
			parsed = events.Succeed(before, parsed, clock.Now().Unix())
		}
		rules[process].Store(parsed)
	}
	var admitted []time.Time
	for i, file := range []string{buckets, shadow, enforced(shadow), log, back, enforced(back), buckets} {
		reload(0, file)
		for half := range 98 { // of an hour
			if half == 48 || i == 0 {
				reload(1, file)
			}
			last := time.Duration(half-48) * 30 * time.Minute // since the second process has reloaded
			for process, server := range servers {
				d := decisionOf(t, request(t, server, "POST", "/v1/events/login_failed/hit", `{"features": {"ip": "192.0.2.1"}}`))
				if d.Allowed {
					admitted = append(admitted, clock.Now())
				}
				for _, limit := range d.Limits {
					name := fmt.Sprintf("%s of process %d, %s after the reload %d", limit.Name, process, last, i)
					young := (file == shadow || file == back) && last < time.Duration(24*process)*time.Hour
					if !limit.Shadow || limit.Window == "24h" && (process == 1 || last < 0) {
						require.Equal(t, young && limit.Shadow, limit.Incomplete, name)
					}
				}
			}
			clock.Advance(30 * time.Minute)
		}
	}
	for i := 20; i < len(admitted); i++ {
		require.GreaterOrEqual(t, admitted[i].Sub(admitted[i-20]), 24*time.Hour)
	}
	require.GreaterOrEqual(t, len(admitted), 280, "in each day there was room for 20")
}

// The answer to a hit on a token bucket has its tokens, and the headers a quota and what remains.
func TestATokenBucketOverHTTP(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	h := newLogServer(t, storestest.Embedded(clock.Now), clock.Now, "[{per: ip, rate: 3/s, burst: 6}]")
	body := `{"features": {"ip": "192.0.2.1"}, "cost": 4}`
	w := request(t, h, "POST", "/v1/events/e/hit", body)
	require.Equal(t, 200, w.Code)
	require.Contains(t, w.Body.String(), `"limit":3,"window":"1s","algorithm":"token-bucket","count":4,"remaining":2,"reset":0,"allowed":true`)
	require.NotContains(t, w.Body.String(), `"wait"`)
	require.Equal(t, `"ip-3-per-1s-burst-6";q=3;w=1`, w.Header().Get("RateLimit-Policy"))
	require.Equal(t, `"ip-3-per-1s-burst-6";r=2`, w.Header().Get("RateLimit"))
	clock.Set(clock.Now().Add(500 * time.Millisecond))
	w = request(t, h, "POST", "/v1/events/e/hit", body)
	require.Equal(t, 429, w.Code)
	d := decisionOf(t, w)
	require.EqualValues(t, 167, d.RetryAfterMS)
	require.EqualValues(t, 3, d.Limits[0].Remaining)
	w = request(t, h, "GET", "/v1/events/e/count?feature=ip:192.0.2.1&window=1s", "")
	require.Equal(t, 400, w.Code)
	require.Contains(t, w.Body.String(), "token buckets alone")
	w = request(t, h, "GET", "/v1/events/e", "")
	require.Contains(t, w.Body.String(), `"algorithm":"token-bucket","burst":6`)
}

// The answer to a hit on a leaky bucket has its wait, and that of a full queue milliseconds.
func TestALeakyBucketOverHTTP(t *testing.T) {
	clock := testkit.NewClock(time.Time{})
	h := newLogServer(t, storestest.Embedded(clock.Now), clock.Now, "[{per: ip, rate: 1/2s, queue: 1}]")
	require.NotContains(t, hitAs(t, h, "192.0.2.1").Body.String(), `"wait"`)
	clock.Set(clock.Now().Add(250 * time.Millisecond))
	w := hitAs(t, h, "192.0.2.1")
	require.Equal(t, 200, w.Code)
	require.Contains(t, w.Body.String(), `"wait":1.75,`)
	w = hitAs(t, h, "192.0.2.1")
	require.Equal(t, 429, w.Code)
	require.EqualValues(t, 1750, decisionOf(t, w).RetryAfterMS)
	require.Equal(t, "2", w.Header().Get("Retry-After"))
}

// A request beyond as many as may wait is answered at once, and does not count.
func TestTooManyRequestsWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		rules, err := rulesfile.Parse([]byte("events: {e: {limits: [{per: [], rate: 1/m, queue: 5}, {per: [], rate: 9/d}]}}"))
		require.NoError(t, err)
		limits, err := httpdecision.NewMiddleware(httpdecision.MiddlewareConfig{
			Service: newServiceOf(t, storestest.Embedded(time.Now), time.Now, func() *events.Rules { return rules }),
			Event:   "e", MaxWaiting: 2,
		})
		require.NoError(t, err)
		var mu sync.Mutex
		var served []float64
		handler := limits(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			d, _ := httpdecision.DecisionOf(r.Context())
			mu.Lock()
			defer mu.Unlock()
			served = append(served, d.Wait.Minutes(), float64(d.Limits[1].Count))
		}))
		serve := func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			return w
		}
		var running sync.WaitGroup
		for range 3 {
			running.Go(func() { assert.Equal(t, http.StatusOK, serve().Code) })
			synctest.Wait()
		}
		begin := time.Now()
		for range 5 {
			w := serve()
			assert.Equal(t, http.StatusServiceUnavailable, w.Code)
			assert.Contains(t, w.Body.String(), "Too many requests wait")
			assert.Equal(t, "1", w.Header().Get("Retry-After"))
		}
		assert.Zero(t, time.Since(begin))
		running.Wait()
		running.Go(func() { assert.Equal(t, http.StatusOK, serve().Code) })
		running.Wait()
		assert.Equal(t, []float64{0, 1, 1, 2, 2, 3, 1, 4}, served)
	})
}
