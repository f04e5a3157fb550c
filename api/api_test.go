package api_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	deniedhits "github.com/counterd/counterd/internal/insight/denied"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/memcache"
)

func TestMain(m *testing.M) {
	time.Local = time.FixedZone("elsewhere", 5*3600+1800) // nothing depends on it
	goleak.VerifyTestMain(m)
}

// now is the time of every test here: nine seconds into a minute.
var now = time.Date(2026, 3, 14, 23, 30, 33, 0, time.UTC)

func clock() time.Time { return now }

// testRules have the example, and an event of each other shape.
func testRules() *events.Rules {
	rules := events.Example()
	rules.Events["export"] = &events.Event{
		Name: "export", Retention: 48 * time.Hour,
		Rules: []events.Rule{
			{Per: []string{}, Limits: []events.Limit{{Name: "all-10-per-1m", N: 10, Window: time.Minute}}},
			{Per: []string{"ip", "user"}, Limits: []events.Limit{{Name: "ip+user-50-per-24h", N: 50, Window: 24 * time.Hour}}},
		},
	}
	rules.Events["plain"] = &events.Event{Name: "plain"}
	return rules
}

// server is an api handler with a log that can be read.
type server struct {
	http.Handler
	log   *bytes.Buffer
	store *memcache.Embedded
}

func newServer() *server {
	s := &server{log: &bytes.Buffer{}, store: memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock})}
	s.Handler = newHandler(s.store, s.log, nil)
	return s
}

func newHandler(store store.Store, log io.Writer, servers func() []service.ServerState) http.Handler {
	rules := testRules()
	decider, err := limiter.New(limiter.Config{Timeout: 20 * time.Second}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: store, Clock: clock, Grace: 40 * time.Second}))
	if err != nil {
		panic(err)
	}
	return newDescribed(api.ServerConfig{
		Service: newService(service.Config{
			Rules:    func() *events.Rules { return rules },
			Counters: counting.New(counting.Config{}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: store, Clock: clock})),
			Limiter:  decider,
		}),
		Health: service.Health{Servers: servers},
		Log:    slog.New(slog.NewTextHandler(log, nil)),
	})
}

// newService returns the service of the config. What it lacks is on a store of its own.
func newService(config service.Config) *service.Service {
	store := memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock})
	if config.Counters == nil {
		config.Counters = counting.New(counting.Config{}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: store, Clock: clock}))
	}
	var err error
	if config.Limiter == nil {
		config.Limiter, err = limiter.New(limiter.Config{Timeout: 20 * time.Second}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: store, Clock: clock, Grace: 40 * time.Second}))
		if err != nil {
			panic(err)
		}
	}
	s, err := service.New(config)
	if err != nil {
		panic(err)
	}
	return s
}

// request makes one exchange. The body is JSON where it is not empty.
func request(t *testing.T, h http.Handler, method, target, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// answer returns the body of a 200.
func answer[T any](t *testing.T, w *httptest.ResponseRecorder) (body T) {
	t.Helper()
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Equal(t, wire.TypeJSON, w.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body))
	return body
}

// problem returns the problem document of an answer that has that status.
func problem(t *testing.T, w *httptest.ResponseRecorder, status int) (p wire.Problem) {
	t.Helper()
	require.Equal(t, status, w.Code, w.Body)
	require.Equal(t, wire.TypeProblem, w.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p, json.RejectUnknownMembers(true)))
	require.Equal(t, status, p.Status)
	require.Equal(t, http.StatusText(status), p.Title)
	require.NotEmpty(t, p.Type)
	require.NotEmpty(t, p.Detail)
	return p
}

const url24h = "/v1/events/url_shorten/count?window=24h&feature=ip:"

func TestIncrementAndCount(t *testing.T) {
	s := newServer()
	w := request(t, s, "POST", "/v1/events/url_shorten/increment", `{"features": {"ip": "203.0.113.9"}}`)
	assert.JSONEq(t, `{"event": "url_shorten", "at": "2026-03-14T23:30:33Z", "by": 1, "counters": ["ip:203.0.113.9"]}`, w.Body.String())
	assert.Equal(t, http.StatusOK, w.Code)
	request(t, s, "POST", "/v1/events/url_shorten/increment", `{"features": {"ip": "203.0.113.9"}, "by": 56, "at": "2026-03-14T01:02:03+01:00"}`)

	w = request(t, s, "GET", url24h+"203.0.113.9", "")
	assert.JSONEq(t, `{"event": "url_shorten", "feature": "ip:203.0.113.9", "window": "24h",
		"from": "2026-03-13T23:30:34Z", "to": "2026-03-14T23:30:33Z", "count": 57,
		"buckets": {"second": 60, "minute": 59, "hour": 23, "total": 142}}`, w.Body.String())

	count := answer[wire.Count](t, request(t, s, "GET", "/v1/events/url_shorten/count?feature=ip:203.0.113.9&window=90s&at=2026-03-14T00:02:03Z", ""))
	assert.Equal(t, int64(56), count.Count)
	assert.Equal(t, "90s", count.Window)
	count = answer[wire.Count](t, request(t, s, "GET", fmt.Sprintf("/v1/events/url_shorten/count?feature=ip:203.0.113.9&window=1m&at=%d", now.Unix()), ""))
	assert.Equal(t, int64(1), count.Count)
}

func TestIncrementAddsToEachFeatureAndNamedCombination(t *testing.T) {
	s := newServer()
	w := request(t, s, "POST", "/v1/events/export/increment", `{"features": {"user": "42", "ip": "2001:db8::1", "zone": "x"}, "by": 3}`)
	done := answer[wire.Incremented](t, w)
	assert.ElementsMatch(t, []string{"ip:2001:db8::/64", "user:42", "zone:x", "", "ip:2001:db8::/64+user:42"}, done.Counters)
	for query, want := range map[string]int64{
		"": 3, "&feature=user:42": 3, "&feature=ip:2001:db8::ffff": 3, "&feature=ip:2001:db8::/64": 3, "&feature=zone:x": 3,
		"&feature=user:42&feature=ip:2001:db8::2": 3, "&feature=ip:2001:db8::2&feature=user:42": 3,
		"&feature=user:42&feature=zone:x": 0, "&feature=user:43": 0, "&feature=ip:2001:db8:0:1::1": 0,
	} {
		count := answer[wire.Count](t, request(t, s, "GET", "/v1/events/export/count?window=48h"+query, ""))
		assert.Equal(t, want, count.Count, query)
	}
}

func TestAnyValueIsCounted(t *testing.T) {
	s := newServer()
	for i, value := range []string{"a b", "a:b", "\r\n", "\x00", "+", "%", "&", "naïve ✓", strings.Repeat("x", 1024), strings.Repeat("✓", 341), "\u2028", `"\`} {
		body, err := json.Marshal(wire.Increment{Features: map[string]string{"user": value}})
		require.NoError(t, err)
		for range i + 1 {
			require.Equal(t, http.StatusOK, request(t, s, "POST", "/v1/events/plain/increment", string(body)).Code, "%q", value)
		}
		count := answer[wire.Count](t, request(t, s, "GET", "/v1/events/plain/count?window=1m&feature="+url.QueryEscape("user:"+value), ""))
		assert.Equal(t, int64(i+1), count.Count, "%q", value)
		assert.Equal(t, "user:"+value, count.Feature)
	}
}

func TestHistoryOfDeniedHits(t *testing.T) {
	s := newServer()
	counters := counting.New(counting.Config{}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: s.store, Clock: clock}))
	event := testRules().Events["url_shorten"]
	counter, err := event.Counter(events.Features{"ip": "203.0.113.9"})
	require.NoError(t, err)
	_, err = counters.Increment(t.Context(), 7, time.Time{}, deniedhits.CounterOf(event, counter.Feature))
	require.NoError(t, err)
	request(t, s, "POST", "/v1/events/url_shorten/increment", `{"features": {"ip": "203.0.113.9"}, "by": 5}`)
	request(t, s, "DELETE", "/v1/events/url_shorten/counters?feature=ip:203.0.113.9", "")
	request(t, s, "POST", "/v1/events/url_shorten/increment", `{"features": {"ip": "203.0.113.9"}, "by": 3}`)
	const path = "/v1/events/url_shorten/history?feature=ip:203.0.113.9&level=hour&from=2026-03-14T23:00:00Z"
	assert.JSONEq(t, `{"event": "url_shorten", "feature": "ip:203.0.113.9", "level": "hour", "outcome": "denied",
		"from": "2026-03-14T23:00:00Z", "to": "2026-03-14T23:59:59Z", "buckets": [{"start": "2026-03-14T23:00:00Z", "count": 7}]}`,
		request(t, s, "GET", path+"&outcome=denied", "").Body.String())
	for _, same := range []string{"", "&outcome=admitted"} {
		assert.JSONEq(t, `{"event": "url_shorten", "feature": "ip:203.0.113.9", "level": "hour",
			"from": "2026-03-14T23:00:00Z", "to": "2026-03-14T23:59:59Z", "buckets": [{"start": "2026-03-14T23:00:00Z", "count": 3}]}`,
			request(t, s, "GET", path+same, "").Body.String(), "%s", same)
	}
}

func TestEventsShowAllOfARule(t *testing.T) {
	rules, err := rulesfile.Parse([]byte(`
events:
  login:
    limits:
      - {per: ip, rate: 20/d, allow: 10.0.0.0/8, deny: 203.0.113.7, overrides: {"198.51.100.7": 1000/d}, ipv6_prefix: 56}
      - {per: [], rate: 5/m, precision: minute, count: all, throttle: soft 10%, on_error: deny, shadow: true}
`))
	require.NoError(t, err)
	h := newDescribed(api.ServerConfig{Service: newService(service.Config{Rules: func() *events.Rules { return rules }})})
	assert.JSONEq(t, `{"name": "login", "retention": "24h", "rules": [
		{"per": ["ip"], "limits": [{"name": "ip-20-per-24h", "limit": 20, "window": "24h"}], "precision": "second",
		 "overrides": {"198.51.100.7": [{"name": "ip-1000-per-24h", "limit": 1000, "window": "24h"}]},
		 "allow": ["10.0.0.0/8"], "deny": ["203.0.113.7"], "ipv6_prefix": 56, "count": "admitted", "throttle": "hard", "on_error": "allow"},
		{"per": [], "limits": [{"name": "all-5-per-1m", "limit": 5, "window": "1m"}], "precision": "minute",
		 "count": "all", "throttle": "soft 10%", "on_error": "deny", "shadow": true}]}`,
		request(t, h, "GET", "/v1/events/login", "").Body.String())
}

func TestHealth(t *testing.T) {
	s := newServer()
	assert.Equal(t, "alive", answer[wire.Health](t, request(t, s, "GET", "/healthz", "")).Status)
	assert.Equal(t, "ready", answer[wire.Health](t, request(t, s, "GET", "/readyz", "")).Status)

	since := time.Date(2026, 11, 21, 10, 0, 0, 0, time.FixedZone("", 3600))
	for name, test := range map[string]struct {
		servers []service.ServerState
		status  int
	}{
		"all":  {[]service.ServerState{{Name: "a:1", Reachable: true, EmptyFrom: since}, {Name: "b:1", Reachable: true, EmptyFrom: since, Evicting: true}}, 200},
		"some": {[]service.ServerState{{Name: "a:1", Reachable: true, EmptyFrom: since, Away: true, Repairing: true, Repaired: 41}, {Name: "b:1"}}, 200},
		"other secrets": {[]service.ServerState{
			{Name: "a:1", Reachable: true, OtherSecret: true}, {Name: "b:1", OtherSecret: true}, {Name: "c:1", Reachable: true, EmptyFrom: since, OtherSecret: true},
		}, 200},
		"none": {[]service.ServerState{{Name: "a:1"}, {Name: "b:1"}}, 503},
	} {
		h := newHandler(s.store, io.Discard, func() []service.ServerState { return test.servers })
		w := request(t, h, "GET", "/readyz", "")
		require.Equal(t, test.status, w.Code, name)
		switch name {
		case "all":
			assert.Equal(t, map[string]string{
				"a:1": "reachable, empty since 2026-11-21T09:00:00Z", "b:1": "reachable, full, incomplete before 2026-11-21T09:00:00Z",
			}, answer[wire.Health](t, w).Store)
		case "other secrets":
			assert.Equal(t, map[string]string{
				"a:1": "reachable, another key secret in use", "b:1": "unreachable, another key secret in use",
				"c:1": "reachable, empty since 2026-11-21T09:00:00Z, another key secret in use",
			}, answer[wire.Health](t, w).Store)
		case "some":
			assert.Equal(t, map[string]string{"a:1": "reachable, away until 2026-11-21T09:00:00Z, repairing 41%", "b:1": "unreachable"}, answer[wire.Health](t, w).Store)
		}
		assert.Equal(t, http.StatusOK, request(t, h, "GET", "/healthz", "").Code, "alive without the store")
	}
}

// goodHit is a hit of a batch that would be counted.
const goodHit = `{"event": "url_shorten", "features": {"ip": "203.0.113.9"}}`

// bad are requests with a fault, each with the status and the place of the fault
// that the answer must name.
var bad = []struct {
	method, target, body string
	status               int
	place                string // parameter or pointer; empty: none
}{
	{"POST", "/v1/events/unknown/increment", `{"features": {"ip": "203.0.113.9"}}`, 404, ""},
	{"GET", "/v1/events/unknown", "", 404, ""},
	{"GET", "/v1/events/unknown/count?window=1m&feature=ip:203.0.113.9", "", 404, ""},
	{"GET", "/v1/events/unknown/history?level=hour&feature=ip:203.0.113.9", "", 404, ""},
	{"DELETE", "/v1/events/unknown/counters?feature=ip:203.0.113.9", "", 404, ""},
	{"GET", "/nowhere", "", 404, ""},
	{"GET", "/v1/events/", "", 404, ""},
	{"GET", "/v1/events/a%2Fb", "", 404, ""},
	{"GET", "/v1/events%2Furl_shorten", "", 404, ""},
	{"GET", "/v1/../v1/events", "", 404, ""},

	{"GET", "/v1/events/url_shorten/increment", "", 405, ""},
	{"POST", "/healthz", `{}`, 405, ""},
	{"BREW", "/readyz", "", 405, ""},

	{"POST", "/v1/events/url_shorten/increment", " ", 400, ""},
	{"POST", "/v1/events/url_shorten/increment", "{", 400, ""},
	{"POST", "/v1/events/export/increment", "null", 400, ""},
	{"POST", "/v1/events/export/increment", `{"features": null}`, 400, "/features"},
	{"POST", "/v1/events/export/increment", `{"by": null}`, 400, "/by"},
	{"POST", "/v1/events/export/hit", `{"features": null}`, 400, "/features"},
	{"POST", "/v1/events/export/hit", `{"cost": null}`, 400, "/cost"},
	{"POST", "/v1/batch", `{"hits": [null]}`, 400, "/hits/0"},
	{"POST", "/v1/batch", `{"hits": [{"event": null}]}`, 400, "/hits/0/event"},

	{"POST", "/v1/events/url_shorten/increment", "[]", 400, ""},
	{"POST", "/v1/events/url_shorten/increment", "{}", 400, "/features"},
	{"POST", "/v1/events/url_shorten/increment", `{"features": {"ip": "203.0.113.9"}} {}`, 400, ""},
	{"POST", "/v1/events/url_shorten/increment", `{"features": {"ip": "203.0.113.9"}, "cost": 1}`, 400, "/cost"},
	{"POST", "/v1/events/url_shorten/increment", `{"Features": {"ip": "203.0.113.9"}}`, 400, ""},
	{"POST", "/v1/events/url_shorten/increment", `{"features": {"ip": "203.0.113.9", "ip": "203.0.113.10"}}`, 400, "/features/ip"},
	{"POST", "/v1/events/url_shorten/increment", `{"features": {"ip": "203.0.113.9"}, "by": 1, "by": 2}`, 400, "/by"},
	{"POST", "/v1/events/url_shorten/increment", `{"features": ["ip:203.0.113.9"]}`, 400, "/features"},
	{"POST", "/v1/events/url_shorten/increment", `{"features": {"ip": 7}}`, 400, "/features/ip"},
	{"POST", "/v1/events/url_shorten/increment", `{"features": {"ip": "203.0.113"}}`, 400, "/features/ip"},
	{"POST", "/v1/events/url_shorten/increment", "{\"features\": {\"user\": \"\xff\"}}", 400, "/features/user"},
	{"POST", "/v1/events/url_shorten/increment", `{"features": {"user": "\ud800"}}`, 400, "/features/user"},
	{"POST", "/v1/events/url_shorten/increment", `{"features": {"User": "42"}}`, 400, "/features"},
	{"POST", "/v1/events/url_shorten/increment", `{"features": {"ip": "203.0.113.9"}, "by": 0}`, 400, "/by"},
	{"POST", "/v1/events/url_shorten/increment", `{"features": {"ip": "203.0.113.9"}, "by": 1000001}`, 400, "/by"},
	{"POST", "/v1/events/url_shorten/increment", `{"features": {"ip": "203.0.113.9"}, "by": 99999999999999999999}`, 400, "/by"},
	{"POST", "/v1/events/url_shorten/increment", `{"features": {"ip": "203.0.113.9"}, "at": "yesterday"}`, 400, "/at"},
	{"POST", "/v1/events/url_shorten/increment", `{"features": {"ip": "203.0.113.9"}, "at": "2026-03-13T23:30:32Z"}`, 400, "/at"},
	{"POST", "/v1/events/url_shorten/increment", `{"features": {"ip": "203.0.113.9"}, "at": "2026-03-14T23:30:36Z"}`, 400, "/at"},
	{"POST", "/v1/events/url_shorten/increment", `{"features": {"ip": "203.0.113.9"}, "at": 9223372036854775807}`, 400, "/at"},
	{"POST", "/v1/events/url_shorten/increment?by=2", `{"features": {"ip": "203.0.113.9"}}`, 400, ""},
	{"POST", "/v1/events/url_shorten/increment", `{"features": {"ip": "203.0.113.9"}, "x": "` + strings.Repeat("x", 1<<20) + `"}`, 413, ""},

	{"GET", "/v1/events/url_shorten/count?window=24h", "", 400, "feature"},
	{"GET", "/v1/events/url_shorten/count?feature=203.0.113.9&window=24h", "", 400, "feature"},
	{"GET", "/v1/events/url_shorten/count?feature=ip:&window=24h", "", 400, "feature"},
	{"GET", "/v1/events/url_shorten/count?feature=ip:203.0.113.9&feature=ip:203.0.113.9&window=24h", "", 400, "feature"},
	{"GET", "/v1/events/url_shorten/count?feature=user:%ff&window=24h", "", 400, "feature"},
	{"GET", "/v1/events/url_shorten/count?feature=ip:203.0.113.9", "", 400, "window"},
	{"GET", "/v1/events/url_shorten/count?feature=ip:203.0.113.9&window=0s", "", 400, "window"},
	{"GET", "/v1/events/url_shorten/count?feature=ip:203.0.113.9&window=1500ms", "", 400, "window"},
	{"GET", "/v1/events/url_shorten/count?feature=ip:203.0.113.9&window=24h1s", "", 400, "window"},
	{"GET", "/v1/events/url_shorten/count?feature=ip:203.0.113.9&window=1m&window=2m", "", 400, "window"},
	{"GET", "/v1/events/url_shorten/count?feature=ip:203.0.113.9&window=1m&at=now", "", 400, "at"},
	{"GET", "/v1/events/url_shorten/count?feature=ip:203.0.113.9&window=1m&at=2026-03-14T23:30:36Z", "", 400, "at"},
	{"GET", "/v1/events/url_shorten/count?feature=ip:203.0.113.9&window=1m&at=2026-03-13T23:30:32Z", "", 400, "at"},
	{"GET", "/v1/events/url_shorten/count?feature=ip:203.0.113.9&window=24h&at=2026-03-14T23:00:00Z", "", 400, "window"},
	{"GET", "/v1/events/url_shorten/count?feature=ip:203.0.113.9&window=1m&limit=5", "", 400, ""},
	{"GET", "/v1/events/url_shorten/count?feature=ip:203.0.113.9&window=1m&x=%zz", "", 400, ""},
	{"GET", "/v1/events/url_shorten/count?feature=ip:203.0.113.9;window=1m", "", 400, ""},
	{"GET", "/v1/events/url_shorten/history?feature=ip:203.0.113.9", "", 400, "level"},
	{"GET", "/v1/events/url_shorten/history?feature=ip:203.0.113.9&level=week", "", 400, "level"},
	{"GET", "/v1/events/url_shorten/history?feature=ip:203.0.113.9&level=second", "", 400, "from"},
	{"GET", "/v1/events/url_shorten/history?feature=ip:203.0.113.9&level=hour&from=2026-03-12T23:30:36Z", "", 400, "from"},
	{"GET", "/v1/events/url_shorten/history?feature=ip:203.0.113.9&level=hour&to=2026-03-15T23:30:36Z", "", 400, "to"},
	{"GET", "/v1/events/url_shorten/history?feature=ip:203.0.113.9&level=second&outcome=denied", "", 400, "level"},
	{"GET", "/v1/events/url_shorten/history?feature=ip:203.0.113.9&level=hour&outcome=allowed", "", 400, "outcome"},
	{"GET", "/v1/events/url_shorten/history?feature=ip:203.0.113.9&level=hour&outcome=denied&outcome=denied", "", 400, "outcome"},
	{"DELETE", "/v1/events/url_shorten/counters", "", 400, "feature"},
	{"DELETE", "/v1/events/url_shorten/counters?feature=ip:203.0.113.9&all=true", "", 400, ""},
	{"POST", "/v1/events/unknown/hit", `{"features": {"ip": "203.0.113.9"}}`, 404, ""},
	{"GET", "/v1/events/unknown/check?feature=ip:203.0.113.9", "", 404, ""},
	{"GET", "/v1/events/url_shorten/hit", "", 405, ""},
	{"POST", "/v1/events/url_shorten/check", `{}`, 405, ""},
	{"GET", "/v1/batch", "", 405, ""},
	{"POST", "/v1/events/url_shorten/hit", "{}", 400, "/features"},
	{"POST", "/v1/events/url_shorten/hit", `{"features": {"user": "42"}}`, 400, "/features"},
	{"POST", "/v1/events/plain/hit", `{"features": {"user": "42"}}`, 400, "/features"},
	{"POST", "/v1/events/url_shorten/hit", `{"features": {"ip": "203.0.113"}}`, 400, "/features/ip"},
	{"POST", "/v1/events/url_shorten/hit", `{"features": {"ip": "", "user": ""}}`, 400, "/features/ip"},
	{"POST", "/v1/events/url_shorten/hit", `{"features": {"ip": "203.0.113.9", "User": "42"}}`, 400, "/features"},
	{"POST", "/v1/events/url_shorten/hit", `{"features": {"ip": "203.0.113.9"}, "by": 1}`, 400, "/by"},
	{"POST", "/v1/events/url_shorten/hit", `{"features": {"ip": "203.0.113.9"}, "at": 1773531033}`, 400, "/at"},
	{"POST", "/v1/events/url_shorten/hit", `{"features": {"ip": "203.0.113.9"}, "cost": -1}`, 400, "/cost"},
	{"POST", "/v1/events/url_shorten/hit", `{"features": {"ip": "203.0.113.9"}, "cost": 1000001}`, 400, "/cost"},
	{"POST", "/v1/events/url_shorten/hit", `{"features": {"ip": "203.0.113.9"}, "cost": 1, "cost": 1}`, 400, "/cost"},
	{"POST", "/v1/events/url_shorten/hit", `{"features": {"ip": "203.0.113.9"}, "cost": 99999999999999999999}`, 400, "/cost"},
	{"POST", "/v1/events/url_shorten/hit?cost=1", `{"features": {"ip": "203.0.113.9"}}`, 400, ""},
	{"POST", "/v1/events/url_shorten/hit", `{"x": "` + strings.Repeat("x", 1<<20) + `"}`, 413, ""},
	{"GET", "/v1/events/url_shorten/check", "", 400, "feature"},
	{"GET", "/v1/events/url_shorten/check?feature=user:42", "", 400, "feature"},
	{"GET", "/v1/events/plain/check?feature=user:42", "", 400, "feature"},
	{"GET", "/v1/events/url_shorten/check?feature=ip:203.0.113.9&feature=ip:203.0.113.9", "", 400, "feature"},
	{"GET", "/v1/events/url_shorten/check?feature=ip:203.0.113.9&cost=-1", "", 400, "cost"},
	{"GET", "/v1/events/url_shorten/check?feature=ip:203.0.113.9&cost=1000001", "", 400, "cost"},
	{"GET", "/v1/events/url_shorten/check?feature=ip:203.0.113.9&cost=18446744073709551617", "", 400, "cost"},
	{"GET", "/v1/events/url_shorten/check?feature=ip:203.0.113.9&cost=1&cost=1", "", 400, "cost"},
	{"GET", "/v1/events/url_shorten/check?feature=ip:203.0.113.9&window=1m", "", 400, ""},
	{"GET", "/v1/events/url_shorten/check?feature=ip:203.0.113.9&at=1773531033", "", 400, ""},
	{"POST", "/v1/batch", "[]", 400, ""},
	{"POST", "/v1/batch", "{}", 400, "/hits"},
	{"POST", "/v1/batch", `{"hits": []}`, 400, "/hits"},
	{"POST", "/v1/batch", `{"hits": {}}`, 400, "/hits"},
	{"POST", "/v1/batch", `{"hits": [` + goodHit + `], "hits": []}`, 400, "/hits"},
	{"POST", "/v1/batch", `{"hits": [` + goodHit + `], "event": "url_shorten"}`, 400, "/event"},
	{"POST", "/v1/batch", `{"hits": [` + goodHit + `, 7]}`, 400, "/hits/1"},
	{"POST", "/v1/batch", `{"hits": [` + goodHit + `, {"event": 7}]}`, 400, "/hits/1/event"},
	{"POST", "/v1/batch", `{"hits": [` + goodHit + `, {"at": 1773531033}]}`, 400, "/hits/1/at"},
	{"POST", "/v1/batch", `{"hits": [` + goodHit + `, {"features": ["ip:203.0.113.9"]}]}`, 400, "/hits/1/features"},
	{"POST", "/v1/batch", `{"hits": [` + goodHit + strings.Repeat(", "+goodHit, 1000) + `]}`, 400, "/hits"},
	{"POST", "/v1/batch?cost=1", `{"hits": [` + goodHit + `]}`, 400, ""},
	{"POST", "/v1/batch", `{"hits": [` + strings.Repeat(goodHit+", ", 20_000) + goodHit + `]}`, 413, ""},

	{"GET", "/healthz?x=1", "", 400, ""},
	{"GET", "/readyz?x=1", "", 400, ""},

	{"DELETE", "/v1/events/export/counters", `{"features": {"ip": "203.0.113.9"}}`, 400, ""},
	{"DELETE", "/v1/events/export/counters?feature=ip:203.0.113.9", " ", 400, ""},
	{"DELETE", "/v1/events/export/counters", strings.Repeat(" ", 1<<20+1), 413, ""},
	{"GET", "/v1/events/export/count?window=1m", `{"features": {"ip": "203.0.113.9"}}`, 400, ""},
	{"GET", "/v1/events/export/check", `{"features": {"ip": "203.0.113.9"}}`, 400, ""},
	{"GET", "/v1/events/export/history?level=hour", "{}", 400, ""},
	{"GET", "/v1/events/export", "{}", 400, ""},
	{"GET", "/v1/events", "{}", 400, ""},
	{"GET", "/healthz", "{}", 400, ""},
	{"GET", "/readyz", "{}", 400, ""},

	{"GET", "/v1/events?name=url_shorten", "", 400, ""},
	{"GET", "/v1/events/url_shorten?x=1", "", 400, ""},
}

func TestBadRequests(t *testing.T) {
	s := newServer()
	for _, test := range bad {
		name := fmt.Sprintf("%s %s %.100s", test.method, test.target, test.body)
		w := request(t, s, test.method, test.target, test.body)
		if !assert.Equal(t, test.status, w.Code, "%s: %s", name, w.Body) {
			continue
		}
		p := problem(t, w, test.status)
		assert.NotContains(t, w.Body.String(), "203.0.113", "%s: a feature's value in the answer", name)
		switch {
		case test.status == http.StatusBadRequest:
			require.NotEmpty(t, p.Errors, name)
			assert.Equal(t, test.place, p.Errors[0].Pointer+p.Errors[0].Parameter, "%s: %s", name, w.Body)
			assert.NotEmpty(t, p.Errors[0].Detail, name)
		case test.status == http.StatusMethodNotAllowed:
			assert.NotEmpty(t, w.Header().Get("Allow"), name)
		}
	}
	assert.Zero(t, s.store.Bytes(), "nothing is counted")
	assert.Empty(t, s.log.String(), "and nobody is woken")
}

// A value that a client chooses, which is empty or long, is counted by its hash, on every route that decides or counts
// hits, and switches off no other limit.
func TestAnyValueOfAClientIsCounted(t *testing.T) {
	h, log := newAuthorizer(t, `
events:
  e: {limits: [{per: user, rate: 6/h}, {per: ip, rate: 9/h}], from: {user: header X-User}}
`, newStore())
	for _, value := range []string{"", strings.Repeat("x", 1025), strings.Repeat("x", 20<<10)} {
		sum := sha256.Sum256([]byte(value))
		hash := "sha256:" + hex.EncodeToString(sum[:])
		hit := `"features":{"ip":"2001:db8:` + strconv.Itoa(len(value)%1000) + `::1","user":"` + value + `"}`
		d := answer[wire.Decision](t, request(t, h, "POST", "/v1/events/e/hit", "{"+hit+"}"))
		require.Len(t, d.Limits, 2)
		assert.Equal(t, "user:"+hash, d.Limits[0].Feature)
		assert.EqualValues(t, 1, d.Limits[0].Count)
		results := answer[wire.Results](t, request(t, h, "POST", "/v1/batch", `{"hits":[{"event":"e",`+hit+`},{"event":"e",`+hit+`}]}`)).Results
		assert.EqualValues(t, 3, results[1].Limits[1].Count)
		assert.Equal(t, http.StatusOK, request(t, h, "POST", "/v1/events/e/increment", "{"+hit+"}").Code)
		if value != "" { // an empty header is none
			assert.Equal(t, http.StatusNoContent, ask(h, "GET", "/v1/authorize/e", "203.0.113.9:1", "X-User", value).Code)
			assert.Equal(t, http.StatusNoContent, ask(h, "GET", "/v1/authorize/e", "203.0.113.9:1", "X-User", value).Code)
			assert.Equal(t, http.StatusTooManyRequests, ask(h, "GET", "/v1/authorize/e", "203.0.113.9:1", "X-User", value).Code)
		}
		want := map[bool]int64{true: 4, false: 6}[value == ""]
		d = answer[wire.Decision](t, request(t, h, "GET", "/v1/events/e/check?feature=user:"+value, ""))
		assert.Equal(t, want, d.Limits[0].Count)
		count := answer[wire.Count](t, request(t, h, "GET", "/v1/events/e/count?window=1m&feature=user:"+hash, ""))
		assert.Equal(t, want, count.Count)
	}
	w := ask(h, "GET", "/v1/authorize/e", "203.0.113.10:1", "X-User", "caf\xe9")
	assert.Equal(t, http.StatusNoContent, w.Code, "not UTF-8: %s", w.Body)
	assert.Empty(t, log.String())
}

func TestSeveralFaultsAreReportedTogether(t *testing.T) {
	s := newServer()
	w := request(t, s, "POST", "/v1/events/url_shorten/increment", `{"features": {"ip": "x", "Z": "1"}, "by": 0}`)
	var places []string
	for _, fault := range problem(t, w, http.StatusBadRequest).Errors {
		places = append(places, fault.Pointer)
	}
	assert.ElementsMatch(t, []string{"/features", "/features/ip", "/by"}, places)

	w = request(t, s, "GET", "/v1/events/url_shorten/count?feature=ip:x&feature=user:&window=z&at=z&more=1", "")
	places = nil
	for _, fault := range problem(t, w, http.StatusBadRequest).Errors {
		places = append(places, fault.Parameter)
	}
	assert.ElementsMatch(t, []string{"", "feature", "feature", "window", "at"}, places)
}

func TestMediaTypes(t *testing.T) {
	s := newServer()
	for _, test := range []struct {
		mediaType, encoding string
		status              int
	}{
		{"application/json", "", 200},
		{"application/json; charset=utf-8", "", 200},
		{"Application/JSON", "", 200},
		{`application/json; charset="UTF-8"`, "", 200},
		{"application/json", "identity", 200},
		{"application/json", "Identity", 200},
		{"application/json; charset=iso-8859-1", "", 415},
		{"application/json; charset=utf-16", "", 415},
		{"application/json; charset=", "", 415},
		{"application/json; charset=utf-8; v=2", "", 415},
		{"application/json; v=2", "", 415},
		{"", "", 415},
		{"text/plain", "", 415},
		{"application/x-www-form-urlencoded", "", 415},
		{"application/json-seq", "", 415},
		{"application/json; =", "", 415},
		{"application/json", "gzip", 415},
	} {
		r := httptest.NewRequest("POST", "/v1/events/plain/increment", strings.NewReader(`{"features": {"user": "42"}}`))
		if test.mediaType != "" {
			r.Header.Set("Content-Type", test.mediaType)
		}
		if test.encoding != "" {
			r.Header.Set("Content-Encoding", test.encoding)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		assert.Equal(t, test.status, w.Code, "%v", test)
		if test.status != 200 {
			problem(t, w, test.status)
		}
	}
}

// failingStore fails as a server does that hangs.
type failingStore struct{}

func (failingStore) Do(_ context.Context, ops ...*store.Op) {
	for _, op := range ops {
		op.Err = context.DeadlineExceeded
	}
}

func (failingStore) Capabilities() store.Capabilities { return store.Capabilities{} }

func TestAStoreThatFails(t *testing.T) {
	var log bytes.Buffer
	h := newHandler(failingStore{}, &log, nil)
	for range 3 {
		problem(t, request(t, h, "POST", "/v1/events/url_shorten/increment", `{"features": {"ip": "203.0.113.9"}}`), 503)
	}
	problem(t, request(t, h, "GET", url24h+"203.0.113.9", ""), 503)
	problem(t, request(t, h, "GET", "/v1/events/url_shorten/history?level=hour&feature=ip:203.0.113.9", ""), 503)
	problem(t, request(t, h, "DELETE", "/v1/events/url_shorten/counters?feature=ip:203.0.113.9", ""), 503)
	assert.Equal(t, 1, strings.Count(log.String(), `msg="store failed"`), "one line a second, not one a request: %s", &log)
	for line := range strings.Lines(log.String()) {
		assert.Equal(t, strings.Contains(line, "counter reset"), strings.Contains(line, "203.0.113.9"), line)
	}
}

// A server between real sockets: bodies that do not arrive, headers that are too
// long.
func TestServerBounds(t *testing.T) {
	s := newServer()
	server := api.NewServer(s, slog.New(slog.DiscardHandler))
	for name, bound := range map[string]time.Duration{
		"ReadHeaderTimeout": server.ReadHeaderTimeout, "ReadTimeout": server.ReadTimeout,
		"WriteTimeout": server.WriteTimeout, "IdleTimeout": server.IdleTimeout,
	} {
		assert.Positive(t, bound, name)
	}
	test := httptest.NewUnstartedServer(nil)
	test.Config = server
	test.Start()
	defer test.Close()

	// Sixteen features of the greatest length, percent-encoded, still fit.
	query := url.Values{"window": {"1m"}}
	for i := range 16 {
		query.Add("feature", fmt.Sprintf("kind%d:%s", i, strings.Repeat("\x01", 1024)))
	}
	response, err := test.Client().Get(test.URL + "/v1/events/plain/count?" + query.Encode())
	require.NoError(t, err)
	response.Body.Close()
	assert.Equal(t, http.StatusOK, response.StatusCode)

	response, err = test.Client().Get(test.URL + "/v1/events/plain/count?feature=user:" + strings.Repeat("x", 100<<10))
	require.NoError(t, err)
	response.Body.Close()
	assert.Equal(t, http.StatusRequestHeaderFieldsTooLarge, response.StatusCode)
}

func FuzzIncrement(f *testing.F) {
	for _, test := range bad {
		if strings.HasSuffix(test.target, "increment") && len(test.body) < 1<<10 {
			f.Add(test.body)
		}
	}
	f.Add(`{"features": {"ip": "203.0.113.9", "user": "42"}, "by": 3, "at": "2026-03-14T01:02:03+01:00"}`)
	f.Fuzz(func(t *testing.T, body string) {
		s := newServer()
		for _, event := range []string{"url_shorten", "export", "plain"} {
			w := request(t, s, "POST", "/v1/events/"+event+"/increment", body)
			if w.Code == http.StatusOK {
				require.NotZero(t, s.store.Bytes())
				continue
			}
			p := problem(t, w, w.Code)
			require.Contains(t, []int{400, 413, 415}, p.Status)
		}
	})
}

func FuzzCountQuery(f *testing.F) {
	for _, test := range bad {
		if _, query, found := strings.Cut(test.target, "?"); found && test.method == "GET" {
			f.Add(query)
		}
	}
	f.Add("feature=ip:2001:db8::1&feature=user:4%0d%0a2&window=7d&at=1773531033")
	s := newServer()
	f.Fuzz(func(t *testing.T, query string) {
		for _, route := range []string{"count", "history"} {
			r := httptest.NewRequest("GET", "/v1/events/export/"+route, nil)
			r.URL.RawQuery = query
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code != http.StatusOK {
				problem(t, w, http.StatusBadRequest)
			}
		}
	})
}

// badStore is one on which a counter has an item that holds no count.
type badStore struct{ store.Store }

func (s badStore) Do(ctx context.Context, ops ...*store.Op) {
	for _, op := range ops {
		if op.Err = fmt.Errorf("no count: %w", store.ErrNoCount); !storetest.IsTrip(op) {
			s.Store.Do(ctx, op)
		}
	}
}

// What a bad counter is, and what to do about it, is in the answer.
func TestABadCounterIsToldFromAStoreThatFails(t *testing.T) {
	var log bytes.Buffer
	h := newHandler(badStore{memcache.NewEmbedded(memcache.EmbeddedConfig{})}, &log, nil)
	for _, w := range []*httptest.ResponseRecorder{
		request(t, h, "GET", "/v1/events/export/count?window=1h&feature=user:42", ""),
		request(t, h, "GET", "/v1/events/export/history?level=hour&feature=user:42", ""),
		request(t, h, "POST", "/v1/events/export/increment", `{"features": {"user": "42"}}`),
	} {
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		require.Contains(t, w.Body.String(), "holds no count")
		require.Contains(t, w.Body.String(), "Reset the counter")
	}
	w := request(t, h, "DELETE", "/v1/events/export/counters?feature=user:42", "")
	require.Equal(t, http.StatusNoContent, w.Code, w.Body)
}
