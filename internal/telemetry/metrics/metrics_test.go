package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/replica/repair"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/telemetry/metrics"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/memcache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// someSecond is far from the ends of a day.
var someSecond = time.Date(2026, 3, 14, 12, 30, 33, 0, time.UTC)

// watched is a process with its metrics, without a network.
type watched struct {
	*metrics.Metrics
	t       testing.TB
	rules   atomic.Pointer[events.Rules]
	servers []string
	lost    memcache.Lost
	mender  repair.State
	limiter *limiter.Limiter
	handler http.Handler
}

func watch(t testing.TB, rules string) *watched {
	t.Helper()
	w := &watched{Metrics: metrics.New(), t: t}
	w.reload(rules)
	clock := func() time.Time { return someSecond }
	store := memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock})
	// A wide grace: the machine may be busy.
	counters := hierarchy.NewCounters(hierarchy.Config{Store: store, Clock: clock, Grace: 40 * time.Second, CacheBytes: 1 << 20})
	var err error
	w.limiter, err = limiter.New(limiter.Config{OnDecision: w.OnDecision, Timeout: 20 * time.Second}, counters)
	require.NoError(t, err)
	w.Watch(metrics.Process{
		Rules:          func() []*events.Rules { return []*events.Rules{w.rules.Load()} },
		Generation:     func() int64 { return 3 },
		ReloadFailures: func() int64 { return 4 },
		Servers: func() (all []memcache.ServerHealth) {
			for _, name := range w.servers {
				all = append(all, memcache.ServerHealth{Name: name, Up: true, Lost: w.lost, Openings: 8})
			}
			return all
		},
		Replicas: owing{}, Repair: func() repair.State { return w.mender }, Limiter: w.limiter, Counters: counting.New(counting.Config{}, counters), Connections: connections{},
	})
	counting, err := service.New(service.Config{Rules: w.rules.Load, Counters: counting.New(counting.Config{}, counters), Limiter: w.limiter})
	require.NoError(t, err)
	w.handler = api.NewServerHandler(api.ServerConfig{
		Service: counting, Metrics: w.Handler(), OnRequest: w.OnRequest, Log: slog.New(slog.DiscardHandler),
	})
	return w
}

type owing struct{}

func (owing) PendingHints() (adds, servers int) { return 5, 1 }

type connections struct{}

func (connections) Open() int      { return 6 }
func (connections) Refused() int64 { return 9 }

func (w *watched) reload(rules string) {
	w.t.Helper()
	parsed, err := rulesfile.Parse([]byte(rules))
	require.NoError(w.t, err)
	w.rules.Store(parsed)
}

func (w *watched) hit(event, ip string) {
	w.t.Helper()
	e, err := w.rules.Load().Event(event)
	require.NoError(w.t, err)
	_, err = w.limiter.Hit(context.Background(), limiter.Hit{Event: e, Features: events.Features{"ip": ip}, Cost: 1})
	require.NoError(w.t, err)
}

// scrape returns the lines of a scrape that contain the text.
func (w *watched) scrape(containing string) (lines []string) {
	w.t.Helper()
	r := httptest.NewRecorder()
	w.Handler().ServeHTTP(r, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(w.t, http.StatusOK, r.Code)
	for line := range strings.Lines(r.Body.String()) {
		if strings.Contains(line, containing) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// series returns the names of counterd's series.
func (w *watched) series() (names []string) {
	w.t.Helper()
	for _, line := range w.scrape("counterd_") {
		if !strings.HasPrefix(line, "#") {
			names = append(names, line[:strings.LastIndex(line, " ")])
		}
	}
	return names
}

func (w *watched) trip(server string) {
	w.OnRoundTrip(context.Background(), memcache.RoundTrip{Server: server, Kind: memcache.Exchange, Adds: 2, Reads: 3, Took: 3 * time.Millisecond})
}

func TestTheRepairerIsSeen(t *testing.T) {
	w := watch(t, "events: {a: {limits: [{per: ip, rate: 9/d}]}}")
	for _, overflowed := range []bool{false, true} {
		w.mender = repair.State{Known: 11, ToWalk: 12, Failed: 13, Raised: 14, Overflowed: overflowed}
		var want []string
		for name, value := range map[string]int{"counters": 11, "counters_left": 25, "raised_buckets_total": 14, "overflowed": map[bool]int{true: 1}[overflowed]} {
			want = append(want, fmt.Sprintf("counterd_repair_%s %d", name, value))
		}
		var got []string
		for _, line := range w.scrape("counterd_repair_") {
			if !strings.HasPrefix(line, "#") {
				got = append(got, line)
			}
		}
		require.ElementsMatch(t, want, got)
	}
}

func TestWhatServersLackIsSeen(t *testing.T) {
	w := watch(t, "events: {a: {limits: [{per: ip, rate: 9/d}]}}")
	w.servers = []string{"m1"}
	for _, test := range []struct {
		lost     memcache.Lost
		since    string
		repaired string
	}{
		{memcache.Lost{}, "0", "1"},
		{memcache.Lost{Since: 7, Repairing: true}, "7", "0"},
		{memcache.Lost{Since: 7, Repairing: true, Percent: 41}, "7", "0.41"},
		{memcache.Lost{Repairing: true, Percent: 50}, "0", "0.5"}, // counters have moved to it
		{memcache.Lost{Since: 7, Left: true, Percent: 100}, "7", "0.99"},
	} {
		w.lost = test.lost
		for name, want := range map[string]string{"lost_since_timestamp_seconds": test.since, "repaired_ratio": test.repaired} {
			line := fmt.Sprintf(`counterd_memcached_%s{server="m1"} `, name)
			assert.Equal(t, []string{line + want}, w.scrape(line), "%+v", test.lost)
		}
	}
}

// The series are those of the rules in force: what stays goes on, what goes is gone, and
// what is new begins at zero.
func TestAReload(t *testing.T) {
	w := watch(t, `events:
  a: {limits: [{per: ip, rate: 2/d, name: first}, {per: ip, rate: 9/d, name: second}]}
  b: {limits: [{per: ip, rate: 2/d, name: only}]}`)
	old := w.rules.Load()
	w.hit("a", "192.0.2.1")
	w.hit("b", "192.0.2.1")
	require.Len(t, w.scrape(`event="b"`), 13, "two calls and three verdicts, three on_errors, a limit's three and near")
	w.reload(`events:
  a: {limits: [{per: ip, rate: 2/d, name: first, overrides: {'192.0.2.9': 1/d}}, {per: ip, rate: 8/d, name: third}]}
  c: {limits: [{per: ip, rate: 2/d, name: only}]}`)
	assert.Empty(t, w.scrape(`event="b"`))
	assert.Empty(t, w.scrape(`limit="second"`))
	assert.Equal(t, []string{`counterd_limit_decisions_total{event="a",limit="first",verdict="allowed"} 1`}, w.scrape(`{event="a",limit="first",verdict="allowed"}`))
	assert.Equal(t, []string{`counterd_limit_decisions_total{event="a",limit="third",verdict="allowed"} 0`}, w.scrape(`{event="a",limit="third",verdict="allowed"}`))
	assert.Len(t, w.scrape(`event="c"`), 13)

	// Hits of the rules before come to their end: they count where there is something left.
	for _, event := range []string{"a", "b"} {
		e, err := old.Event(event)
		require.NoError(t, err)
		_, err = w.limiter.Hit(t.Context(), limiter.Hit{Event: e, Features: events.Features{"ip": "192.0.2.1"}, Cost: 1})
		require.NoError(t, err)
	}
	w.hit("a", "192.0.2.9")
	assert.Equal(t, []string{`counterd_decisions_total{call="hit",event="a",verdict="allowed"} 3`}, w.scrape(`{call="hit",event="a",verdict="allowed"}`))
	assert.Equal(t, []string{`counterd_limit_decisions_total{event="a",limit="first",verdict="allowed"} 3`}, w.scrape(`{event="a",limit="first",verdict="allowed"}`))
	assert.Equal(t, []string{`counterd_limit_decisions_total{event="a",limit="third",verdict="allowed"} 1`}, w.scrape(`{event="a",limit="third",verdict="allowed"}`))
	assert.Empty(t, w.scrape(`event="b"`))
	assert.Empty(t, w.scrape(`limit="second"`))
}

// Hits of new rules count at once, without a scrape in between.
func TestAHitAfterAReload(t *testing.T) {
	w := watch(t, "events: {a: {limits: [{per: ip, rate: 9/d}]}}")
	w.reload("events: {b: {limits: [{per: ip, rate: 9/d}]}}")
	w.hit("b", "192.0.2.1")
	assert.Equal(t, []string{`counterd_decisions_total{call="hit",event="b",verdict="allowed"} 1`}, w.scrape(`{call="hit",event="b",verdict="allowed"}`))
}

// While rules are reloaded and scrapes are made, no hit is lost of an event that stays.
func TestReloadsUnderLoad(t *testing.T) {
	w := watch(t, "events: {a: {limits: [{per: ip, rate: 90000/d}]}}")
	var hitting, watching sync.WaitGroup
	ended := make(chan struct{})
	const callers, hits = 4, 500
	for range callers {
		hitting.Go(func() {
			for range hits {
				w.hit("a", "192.0.2.1")
			}
		})
	}
	watching.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-ended:
				return
			default:
				w.reload(fmt.Sprintf("events: {a: {limits: [{per: ip, rate: 90000/d}, {per: user, rate: %d/d}]}, e%d: {limits: [{per: ip, rate: 9/d}]}}", i%3+1, i%5))
				w.scrape("counterd_")
			}
		}
	})
	hitting.Wait()
	close(ended)
	watching.Wait()
	for _, line := range []string{
		fmt.Sprintf(`counterd_decisions_total{call="hit",event="a",verdict="allowed"} %d`, callers*hits),
		fmt.Sprintf(`counterd_limit_decisions_total{event="a",limit="ip-per-24h",verdict="allowed"} %d`, callers*hits),
	} {
		assert.Equal(t, []string{line}, w.scrape(line))
	}
	assert.Len(t, w.scrape("counterd_limit_near_total{"), 3, "those of the rules in force")
}

// From four fifths on, and not for features on the allow list.
func TestNear(t *testing.T) {
	w := watch(t, `events: {a: {limits: [{per: ip, rate: 9/d, name: nine, allow: [192.0.2.2]}]}}`)
	near := func() string { return w.scrape(`counterd_limit_near_total{event="a",limit="nine"} `)[0] }
	for i := range 9 {
		w.hit("a", "192.0.2.1")
		w.hit("a", "192.0.2.2")
		assert.Equal(t, fmt.Sprintf(`counterd_limit_near_total{event="a",limit="nine"} %d`, max(i-6, 0)), near(), "hit %d", i+1)
	}
	w.hit("a", "192.0.2.1")
	assert.Equal(t, `counterd_limit_near_total{event="a",limit="nine"} 2`, near(), "denied")
}

// The series of a server are there as long as it is in the list.
func TestServersComeAndGo(t *testing.T) {
	w := watch(t, "events: {a: {limits: [{per: ip, rate: 9/d}]}}")
	w.servers = []string{"one:11211", "two:11211"}
	w.trip("one:11211")
	before := len(w.scrape(`server="one:11211"`))
	assert.Equal(t, 54, before, "as docs/metrics.md says")
	assert.Equal(t, before, len(w.scrape(`server="two:11211"`)), "there was no trip yet")
	assert.Contains(t, w.scrape("counterd_store"), `counterd_store_round_trips_total{kind="exchange",outcome="ok",server="one:11211"} 1`)
	assert.Contains(t, w.scrape("counterd_store"), `counterd_store_round_trip_duration_seconds_count{server="one:11211"} 1`)
	w.servers = w.servers[1:]
	w.trip("one:11211") // it was under way
	assert.Empty(t, w.scrape(`server="one:11211"`))
	w.servers = append(w.servers, "one:11211")
	w.trip("one:11211")
	assert.Len(t, w.scrape(`server="one:11211"`), before)
	assert.Contains(t, w.scrape("counterd_store"), `counterd_store_round_trips_total{kind="exchange",outcome="ok",server="one:11211"} 1`)
}

// What was not asked takes no time, adds nothing and reads nothing.
func TestTripsByOutcome(t *testing.T) {
	w := watch(t, "events: {a: {limits: [{per: ip, rate: 9/d}]}}")
	w.servers = []string{"one:11211"}
	for _, err := range []error{nil, memcache.ErrDown, memcache.ErrClosed, context.DeadlineExceeded, errors.New("else")} {
		for _, kind := range memcache.RoundTripKinds() {
			w.OnRoundTrip(t.Context(), memcache.RoundTrip{Server: "one:11211", Kind: kind, Adds: 2, Reads: 3, Err: err})
		}
	}
	for _, kind := range memcache.RoundTripKinds() {
		for _, outcome := range memcache.Outcomes() {
			want := 1
			if outcome == memcache.OutcomeRefused {
				want = 0
			}
			line := fmt.Sprintf(`counterd_store_round_trips_total{kind=%q,outcome=%q,server="one:11211"} %d`, kind, outcome, want)
			assert.Equal(t, []string{line}, w.scrape(line))
		}
	}
	for line, want := range map[string]int{"adds_total": 6, "reads_total": 9, "round_trip_duration_seconds_count": 3} {
		line = fmt.Sprintf(`counterd_store_%s{server="one:11211"} %d`, line, want)
		assert.Equal(t, []string{line}, w.scrape(line))
	}
}

// However many features there are, and whatever clients ask for: the series stay the same.
func TestTheSeriesStayTheSame(t *testing.T) {
	w := watch(t, "events: {a: {limits: [{per: ip, rate: [1/d, 9/h]}]}}")
	w.servers = []string{"one:11211"}
	ask := func(method, path, body string) {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w.handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	all := func(i int) {
		address := fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)
		event, err := w.rules.Load().Event("a")
		require.NoError(t, err)
		hit := limiter.Hit{Event: event, Features: events.Features{"ip": address, "user": fmt.Sprintf("zebra-%d", i)}, Cost: 1}
		for range 2 { // the second is denied
			_, err = w.limiter.Hit(t.Context(), hit)
			require.NoError(t, err)
		}
		if i%200 != 0 {
			return
		}
		_, err = w.limiter.Check(t.Context(), hit)
		require.NoError(t, err)
		features := fmt.Sprintf(`{"features": {"ip": %q}}`, address)
		ask("POST", "/v1/events/a/hit", features)
		ask("POST", fmt.Sprintf("/v1/events/zebra%d/hit", i), features)
		ask("POST", "/v1/batch", fmt.Sprintf(`{"hits": [{"event": "zebra%d", "features": {"ip": %q}}]}`, i, address))
		ask("GET", fmt.Sprintf("/zebra%d", i), "")
		ask("GET", fmt.Sprintf("/v1/events/a/count?window=1h&feature=ip:%s", address), "")
		ask(fmt.Sprintf("ZEBRA%d", i), "/v1/batch", "")
		ask(fmt.Sprintf("ZEBRA%d", i), "/v1/authorize/a?zebra", "")
		ask("GET", "/metrics", "")
	}
	all(0)
	before := w.series()
	require.Greater(t, len(before), 100)
	features := int(testkit.Seeds(100_000))
	for i := 1; i <= features; i++ {
		all(i)
	}
	assert.Equal(t, before, w.series())
	assert.Contains(t, w.scrape("decisions"), fmt.Sprintf(`counterd_decisions_total{call="hit",event="a",verdict="allowed"} %d`, features+1))
	assert.Empty(t, w.scrape("zebra"))
	assert.Empty(t, w.scrape("ZEBRA"))
	assert.Empty(t, w.scrape("10.0."))
}

// A route has as many series as docs/metrics.md says.
func TestTheSeriesOfARoute(t *testing.T) {
	w := watch(t, "events: {a: {limits: [{per: ip, rate: 9/d}]}}")
	w.OnRequest("/healthz", "GET", 200, time.Millisecond)
	w.OnRequest("/healthz", "HEAD", 200, time.Millisecond)
	assert.Len(t, w.scrape(`route="/healthz"`), 16+2)
}

// The metrics are as Prometheus wants them.
func TestLint(t *testing.T) {
	w := watchAll(t)
	r := httptest.NewRecorder()
	w.Handler().ServeHTTP(r, httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Contains(t, string(body), "counterd_http_request_duration_seconds_count")
	problems, err := promlint.New(strings.NewReader(string(body))).Lint()
	require.NoError(t, err)
	assert.Empty(t, problems)
}

// watchAll returns metrics all of which have a series.
func watchAll(t *testing.T) *watched {
	w := watch(t, "events: {a: {limits: [{per: ip, rate: 9/d}]}}")
	w.servers = []string{"one:11211"}
	w.hit("a", "192.0.2.1")
	w.trip("one:11211")
	w.OnRequest("/metrics", "GET", 200, time.Millisecond)
	return w
}

// What others count is served with the rest.
func TestMore(t *testing.T) {
	m := metrics.New()
	m.AddCounter("counterd_failures_total", "What failed.", func() float64 { return 2 })
	m.AddGauge("counterd_depth", "How deep it is.", func() float64 { return 3 })
	m.AddCounters("counterd_unauthorized_total", "Who may not.", []string{"class", "reason"}, func(yield func([]string, float64) bool) {
		_ = yield([]string{"decide", "missing"}, 4) && yield([]string{"reset", "unknown"}, 0)
	})
	r := httptest.NewRecorder()
	m.Handler().ServeHTTP(r, httptest.NewRequest("GET", "/metrics", nil))
	assert.Contains(t, r.Body.String(), `counterd_unauthorized_total{class="decide",reason="missing"} 4`)
	assert.Contains(t, r.Body.String(), `counterd_unauthorized_total{class="reset",reason="unknown"} 0`)
	assert.Contains(t, r.Body.String(), "# TYPE counterd_failures_total counter\ncounterd_failures_total 2\n")
	assert.Contains(t, r.Body.String(), "# TYPE counterd_depth gauge\ncounterd_depth 3\n")
	assert.Contains(t, r.Body.String(), "\ncounterd_build_info{")
	assert.Contains(t, r.Body.String(), "\ngo_goroutines ")
}
