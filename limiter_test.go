package counterd_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/api/page"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ctx     = context.Background()
	visitor = counterd.Features{"ip": "192.0.2.1"}
)

const someRules = `events:
  login:
    limits:
      - {per: ip, rate: 3/d}
      - {per: [email, ip], rate: 100/d}
  signup:
  export:
    limits: [{per: [], rate: 10/d}]
`

func parse(t *testing.T, text string) counterd.Rules {
	t.Helper()
	rules, err := counterd.ParseRules([]byte(text))
	require.NoError(t, err)
	return rules
}

// start returns a limiter that is closed with the test.
func start(t *testing.T, rules counterd.Rules, options ...counterd.Option) *counterd.Limiter {
	t.Helper()
	options = append([]counterd.Option{counterd.WithLog(slog.New(slog.DiscardHandler))}, options...)
	limiter, err := counterd.New(rules, options...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, limiter.Close()) })
	return limiter
}

// onBusyMachine are the options of tests that a busy machine may not disturb.
var onBusyMachine = []counterd.Option{counterd.WithGrace(20 * time.Second), counterd.WithTimeout(10 * time.Second)}

// onEach runs a test with the embedded store and on Memcached with replicas.
func onEach(t *testing.T, test func(t *testing.T, options ...counterd.Option)) {
	t.Run("embedded", func(t *testing.T) { test(t, onBusyMachine...) })
	t.Run("replicas", func(t *testing.T) {
		leaktest.Check(t)
		test(t, append(onBusyMachine, counterd.WithMemcached(memcachedtest.StartMany(t, 2)...), counterd.WithReplicas(2))...)
	})
}

func TestHitsAreLimited(t *testing.T) {
	onEach(t, func(t *testing.T, options ...counterd.Option) {
		limiter := start(t, parse(t, someRules), options...)
		checked, err := limiter.Check(ctx, "login", visitor)
		require.NoError(t, err)
		assert.True(t, checked.Allowed)
		for i := range int64(3) {
			d, err := limiter.Hit(ctx, "login", visitor)
			require.NoError(t, err)
			require.Len(t, d.Limits, 1)
			assert.True(t, d.Allowed)
			assert.Zero(t, d.RetryAfter)
			state := d.Limits[0]
			assert.Equal(t, i+1, state.Count)
			assert.Equal(t, 2-i, state.Remaining)
			assert.Equal(t, "ip-3-per-24h", state.Name)
			assert.Equal(t, "ip:192.0.2.1", state.Feature.String())
			assert.Equal(t, int64(3), state.Limit)
			assert.Equal(t, 24*time.Hour, state.Window)
			assert.True(t, state.Exact)
			assert.Empty(t, state.OnError)
		}
		d, err := limiter.Hit(ctx, "login", visitor)
		require.NoError(t, err)
		assert.False(t, d.Allowed)
		assert.Greater(t, d.RetryAfter, 23*time.Hour)
		assert.LessOrEqual(t, d.RetryAfter, 24*time.Hour)
		checked, err = limiter.CheckN(ctx, "login", visitor, 3)
		require.NoError(t, err)
		assert.False(t, checked.Allowed)

		d, err = limiter.HitN(ctx, "login", counterd.Features{"ip": "192.0.2.2", "email": "a@example.com"}, 2)
		require.NoError(t, err)
		assert.True(t, d.Allowed)
		require.Len(t, d.Limits, 2)
		assert.Equal(t, int64(2), d.Limits[0].Count)
		d, err = limiter.HitN(ctx, "login", visitor, 4)
		require.NoError(t, err)
		assert.False(t, d.Allowed)
		assert.Equal(t, counterd.Never, d.RetryAfter, "the cost is above the limit")
		d, err = limiter.Hit(ctx, "export", nil)
		require.NoError(t, err)
		assert.True(t, d.Allowed)
		assert.Empty(t, d.Limits[0].Feature)
	})
}

func TestBatches(t *testing.T) {
	onEach(t, func(t *testing.T, options ...counterd.Option) {
		limiter := start(t, parse(t, someRules), options...)
		results, err := limiter.Hits(ctx, []counterd.Hit{
			{Event: "login", Features: visitor},
			{Event: "logon", Features: visitor},
			{Event: "login", Features: visitor, Cost: 3},
			{Event: "login", Features: counterd.Features{"ipp": "192.0.2.1"}},
			{Event: "login", Features: visitor, Cost: 2},
			{Event: "login", Features: visitor, Cost: -1},
		})
		require.NoError(t, err)
		require.Len(t, results, 6)
		for i, allowed := range map[int]bool{0: true, 2: false, 4: true} {
			require.NoError(t, results[i].Err)
			assert.Equal(t, allowed, results[i].Decision.Allowed, "%d", i)
		}
		require.ErrorIs(t, results[1].Err, counterd.ErrUnknownEvent)
		require.ErrorIs(t, results[3].Err, counterd.ErrInvalid)
		require.ErrorIs(t, results[5].Err, counterd.ErrOutOfRange)
		results, err = limiter.Hits(ctx, nil)
		require.NoError(t, err)
		assert.Empty(t, results)
		_, err = limiter.Hits(ctx, make([]counterd.Hit, 1001))
		require.ErrorIs(t, err, counterd.ErrOutOfRange)
	})
}

func TestEventsAreCounted(t *testing.T) {
	onEach(t, func(t *testing.T, options ...counterd.Option) {
		limiter := start(t, parse(t, someRules), options...)
		earlier := time.Now().Add(-3 * time.Hour)
		require.NoError(t, limiter.Increment(ctx, "signup", visitor, 5, earlier))
		require.NoError(t, limiter.Increment(ctx, "signup", visitor, 1, time.Time{}))
		for window, want := range map[time.Duration]int64{time.Hour: 1, 24 * time.Hour: 6} {
			count, err := limiter.Count(ctx, "signup", visitor, window)
			require.NoError(t, err)
			assert.Equal(t, want, count, "%s", window)
		}
		count, err := limiter.CountAt(ctx, "signup", visitor, time.Minute, earlier)
		require.NoError(t, err)
		assert.Equal(t, int64(5), count)
		history, err := limiter.History(ctx, "signup", visitor, counterd.Hour, earlier, time.Time{})
		require.NoError(t, err)
		assert.GreaterOrEqual(t, len(history), 4)
		assert.Equal(t, counterd.Bucket{Start: earlier.UTC().Truncate(time.Hour), Count: 5}, history[0])
		require.NoError(t, limiter.Reset(ctx, "signup", visitor))
		count, err = limiter.Count(ctx, "signup", visitor, 24*time.Hour)
		require.NoError(t, err)
		assert.Zero(t, count)
	})
}

// Wrong calls are errors that say what to do, and never panics.
func TestFaultsOfCalls(t *testing.T) {
	limiter := start(t, parse(t, someRules))
	call := func(event string, features counterd.Features) error {
		_, err := limiter.Hit(ctx, event, features)
		return err
	}
	cost := func(cost int64) error {
		_, err := limiter.HitN(ctx, "login", visitor, cost)
		return err
	}
	count := func(window time.Duration) error {
		_, err := limiter.Count(ctx, "login", visitor, window)
		return err
	}
	history := func(level counterd.Level) error {
		_, err := limiter.History(ctx, "login", visitor, level, time.Time{}, time.Time{})
		return err
	}
	for name, fault := range map[string]struct {
		err   error
		cause error
		says  string
	}{
		"event that is close":   {call("logni", visitor), counterd.ErrUnknownEvent, `no event "logni": did you mean "login"?`},
		"event that is far":     {call("something-else", visitor), counterd.ErrUnknownEvent, "there is export, login, signup"},
		"empty event":           {call("", visitor), counterd.ErrUnknownEvent, "there is export, login, signup"},
		"feature that is close": {call("login", counterd.Features{"ip": "192.0.2.1", "emial": "x"}), counterd.ErrInvalid, `no limit of login is per "emial": did you mean "email"?`},
		"missing feature":       {call("login", counterd.Features{"email": "secret"}), counterd.ErrInvalid, "ip"},
		"no features":           {call("login", nil), counterd.ErrInvalid, "ip"},
		"event without limits":  {call("signup", visitor), counterd.ErrInvalid, "signup has no limits"},
		"value":                 {call("login", counterd.Features{"ip": "secret"}), counterd.ErrInvalid, "not an IP address"},
		"negative cost":         {cost(-1), counterd.ErrOutOfRange, "cost"},
		"cost above the most":   {cost(1_000_001), counterd.ErrOutOfRange, "cost"},
		"window of 0":           {count(0), counterd.ErrOutOfRange, "window"},
		"window above the most": {count(100 * 24 * time.Hour), counterd.ErrOutOfRange, "window"},
		"increment of 0":        {limiter.Increment(ctx, "login", visitor, 0, time.Time{}), counterd.ErrOutOfRange, "by"},
		"increment to come":     {limiter.Increment(ctx, "login", visitor, 1, time.Now().Add(time.Hour)), counterd.ErrOutOfRange, "at"},
		"level":                 {history("fortnight"), counterd.ErrOutOfRange, `no level "fortnight"`},
		"reset of no counter":   {limiter.Reset(ctx, "login", nil), counterd.ErrInvalid, ""},
		"no rules":              {limiter.SetRules(counterd.Rules{}), counterd.ErrInvalid, "ParseRules"},
		"rules of nothing":      {limiter.SetRules(counterd.RulesOf(nil)), counterd.ErrInvalid, "ParseRules"},
	} {
		require.Error(t, fault.err, name)
		assert.ErrorIs(t, fault.err, fault.cause, name)
		assert.ErrorContains(t, fault.err, fault.says, name)
		assert.NotContains(t, fault.err.Error(), "secret", name)
	}
	var none context.Context
	for name, err := range map[string]error{
		"hit":       second(limiter.Hit(none, "login", visitor)),
		"hitN":      second(limiter.HitN(none, "login", visitor, 1)),
		"check":     second(limiter.Check(none, "login", visitor)),
		"hits":      second(limiter.Hits(none, nil)),
		"count":     second(limiter.Count(none, "login", visitor, time.Hour)),
		"increment": limiter.Increment(none, "login", visitor, 1, time.Time{}),
		"history":   second(limiter.History(none, "login", visitor, counterd.Day, time.Time{}, time.Time{})),
		"reset":     limiter.Reset(none, "login", visitor),
	} {
		require.ErrorIs(t, err, counterd.ErrInvalid, name)
		assert.ErrorContains(t, err, "the context is nil: use context.Background", name)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, second(limiter.Hit(ended, "login", visitor)), context.Canceled)
}

func second[T any](_ T, err error) error { return err }

// New reports all faults together.
func TestFaultsOfOptions(t *testing.T) {
	var none context.Context
	good := parse(t, someRules)
	for name, fault := range map[string]struct {
		rules   counterd.Rules
		options []counterd.Option
		says    []string
	}{
		"no rules":         {counterd.Rules{}, nil, []string{"counterd: there are no rules"}},
		"nil option":       {good, []counterd.Option{nil}, []string{"an option is nil"}},
		"nil log, context": {good, []counterd.Option{counterd.WithLog(nil), counterd.WithContext(none)}, []string{"WithLog: the logger is nil", "WithContext: the context is nil"}},
		"no servers":       {good, []counterd.Option{counterd.WithMemcached()}, []string{"WithMemcached: no server is named"}},
		"empty server":     {good, []counterd.Option{counterd.WithMemcached("")}, []string{"WithMemcached: no server is named"}},
		"server":           {good, []counterd.Option{counterd.WithMemcached("localhost")}, []string{"WithMemcached: "}},
		"timeout":          {good, []counterd.Option{counterd.WithTimeout(2 * time.Second)}, []string{"WithTimeout: 2s is not between 1ms and half the grace, 1s: set a longer WithGrace"}},
		"many": {counterd.Rules{}, []counterd.Option{
			counterd.WithReplicas(9), counterd.WithGrace(time.Hour), counterd.WithProtocol("binary"), counterd.WithMaxPending(0),
			counterd.WithMemcachedCA("ca"), counterd.WithKeySecret("file"), counterd.WithMemcachedFile(""),
		}, []string{"no rules", "WithReplicas: 9", "WithGrace: 1h", "WithProtocol: ", "WithMaxPending: 0", "WithMemcachedCA: set WithMemcachedTLS",
			"WithKeySecret: no server", "WithMemcachedFile: "}},
	} {
		limiter, err := counterd.New(fault.rules, fault.options...)
		require.Error(t, err, name)
		assert.Nil(t, limiter, name)
		require.ErrorIs(t, err, counterd.ErrInvalid, name)
		for _, says := range fault.says {
			assert.ErrorContains(t, err, says, name)
		}
		assert.NotContains(t, err.Error(), "{", name)
	}
	_, err := counterd.New(good, counterd.WithMemcached("127.0.0.1:1"), counterd.WithKeySecret("/nowhere/secret.txt"))
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, "counterd: WithKeySecret: /nowhere/secret.txt cannot be opened")
}

// Rules that the limiter cannot keep are refused at the start and by SetRules.
func TestFaultsOfRules(t *testing.T) {
	_, err := counterd.ParseRules([]byte("events: {e: {limits: [{per: ip, rate: 5/mm}, {per: IP, rate: 1/m}]}}"))
	require.ErrorIs(t, err, counterd.ErrInvalid)
	faults, ok := errors.AsType[events.Faults](err)
	require.True(t, ok)
	assert.Len(t, faults, 2)
	_, err = counterd.ReadRules(filepath.Join(t.TempDir(), "missing.yaml"))
	require.ErrorIs(t, err, os.ErrNotExist)

	const fault = "login, per ip: a log of the 100 hits in 1s, the retention, takes up to"
	long, late := parse(t, "events: {login: {limits: [{per: ip, rate: 100/s, algorithm: sliding-log}]}}"), counterd.WithGrace(20*time.Second)
	_, err = counterd.New(long, late)
	require.ErrorIs(t, err, counterd.ErrInvalid)
	require.ErrorContains(t, err, fault)
	require.ErrorContains(t, start(t, parse(t, someRules), late).SetRules(long), fault)
}

// A store that does not answer is no error: the rules say what is decided without it.
func TestStoreThatIsDown(t *testing.T) {
	rules := parse(t, "events: {lenient: {limits: [{per: ip, rate: 1/d}]}, strict: {limits: [{per: ip, rate: 1/d, on_error: deny}]}}")
	limiter := start(t, rules, counterd.WithMemcached("127.0.0.1:1"))
	d, err := limiter.Hit(ctx, "lenient", visitor)
	require.NoError(t, err)
	assert.True(t, d.Allowed)
	assert.Equal(t, []any{true, events.OnErrorAllow}, []any{d.Limits[0].Failed, d.Limits[0].OnError})
	d, err = limiter.Hit(ctx, "strict", visitor)
	require.NoError(t, err)
	assert.False(t, d.Allowed)
	assert.True(t, d.Unavailable)
	require.ErrorIs(t, second(limiter.Count(ctx, "lenient", visitor, time.Hour)), counterd.ErrStore)
}

// Rules change under way.
func TestRulesChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(text string) { testkit.ReplaceFile(t, path, text) }
	write("events: {e: {limits: [{per: ip, rate: 1/d}]}}")
	rules, err := counterd.ReadRules(path)
	require.NoError(t, err)
	limiter := start(t, rules)
	limit := func() int64 {
		d, err := limiter.Check(ctx, "e", visitor)
		require.NoError(t, err)
		return d.Limits[0].Limit
	}
	assert.Equal(t, int64(1), limit())
	require.NoError(t, limiter.SetRules(parse(t, "events: {e: {limits: [{per: ip, rate: 2/d}]}}")))
	assert.Equal(t, int64(2), limit())
}

// Close joins all goroutines, and may be called again, by many at once.
func TestClose(t *testing.T) {
	onEach(t, func(t *testing.T, options ...counterd.Option) {
		defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
		limiter, err := counterd.New(parse(t, someRules), append(options, counterd.WithLog(slog.New(slog.DiscardHandler)))...)
		require.NoError(t, err)
		require.NoError(t, second(limiter.Hit(ctx, "login", visitor)))
		var closing sync.WaitGroup
		for range 3 {
			closing.Go(func() { assert.NoError(t, limiter.Close()) })
		}
		closing.Wait()
		require.NoError(t, limiter.Close())
		for name, err := range map[string]error{
			"hit":       second(limiter.Hit(ctx, "login", visitor)),
			"hits":      second(limiter.Hits(ctx, []counterd.Hit{{Event: "login", Features: visitor}})),
			"count":     second(limiter.Count(ctx, "login", visitor, time.Hour)),
			"increment": limiter.Increment(ctx, "login", visitor, 1, time.Time{}),
		} {
			assert.ErrorIs(t, err, counterd.ErrClosed, name)
		}
	})
}

func serveOnce(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestMiddleware(t *testing.T) {
	log := &testkit.Log{}
	limiter := start(t, parse(t, "events: {login: {limits: [{per: ip, rate: 2/d}, {per: team, rate: 5/d}]}}"), counterd.WithLog(slog.New(slog.NewTextHandler(log, nil))))
	team := counterd.FeatureFrom("team", func(r *http.Request) (string, error) { return r.Header.Get("Team"), nil })
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, found := counterd.DecisionOf(r.Context())
		assert.True(t, found)
		assert.True(t, d.Allowed)
	})
	handler := limiter.Middleware("login", team, nil)(next)
	assert.Equal(t, 200, serveOnce(handler, httptest.NewRequest("GET", "/", nil)).Code)
	assert.Equal(t, 200, serveOnce(handler, httptest.NewRequest("GET", "/", nil)).Code)
	denied := serveOnce(handler, httptest.NewRequest("GET", "/", nil))
	assert.Equal(t, 429, denied.Code)
	assert.NotEmpty(t, denied.Header().Get("Retry-After"))
	assert.NotContains(t, log.String(), "level=ERROR")

	costly := limiter.Middleware("login", team, counterd.CostOf(func(*http.Request) int64 { return 6 }), counterd.OnDenied(func(w http.ResponseWriter, _ *http.Request, d counterd.Decision) {
		assert.Equal(t, counterd.Never, d.RetryAfter)
		w.WriteHeader(http.StatusTeapot)
	}))
	assert.Equal(t, http.StatusTeapot, serveOnce(costly(next), httptest.NewRequest("GET", "/", nil)).Code)

	_, found := counterd.DecisionOf(ctx)
	assert.False(t, found)
}

// A middleware that does not fit the rules is logged at once. It serves nothing without a limit,
// and serves again when the rules fit.
func TestMiddlewareThatDoesNotFit(t *testing.T) {
	log := &testkit.Log{}
	limiter := start(t, parse(t, someRules), counterd.WithLog(slog.New(slog.NewTextHandler(log, nil))))
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	unknown := limiter.Middleware("logn")(next)
	assert.Contains(t, log.String(), `level=ERROR msg="a middleware does not fit the rules in force`)
	request := httptest.NewRequest("GET", "/", nil)
	assert.Equal(t, 500, serveOnce(unknown, request).Code)
	for _, wrong := range []func(http.Handler) http.Handler{limiter.Middleware(""), limiter.Middleware("export", counterd.FeatureFrom("ip", nil)), limiter.Middleware("export", counterd.FeatureFrom("No Kind", nil))} {
		assert.Equal(t, 500, serveOnce(wrong(next), request).Code)
	}
	require.NoError(t, limiter.SetRules(parse(t, "events: {logn: {limits: [{per: ip, rate: 1/d}]}}")))
	assert.Equal(t, 200, serveOnce(unknown, request).Code)
	assert.Equal(t, 429, serveOnce(unknown, request).Code)
}

// handlerOf returns the HTTP interface of a limiter.
func handlerOf(l *counterd.Limiter) http.Handler {
	return api.NewServerHandler(api.ServerConfig{Service: l.Parts().Service, Health: l.Parts().Health(), Log: l.Parts().Settings.Log})
}

// The handler for clients has no route that resets, overrides or shows, and that for operators has no other.
func TestHandlers(t *testing.T) {
	l := start(t, parse(t, someRules))
	clients, operators := api.NewHandler(l, api.Config{}), api.NewOperatorHandler(l, api.Config{})
	for _, route := range []struct {
		method, path     string
		client, operator int
	}{
		{"GET", "/v1/events", 200, 404},
		{"GET", "/v1/events/login/check?feature=ip:192.0.2.1", 200, 404},
		{"GET", "/v1/events/login/count?feature=ip:192.0.2.1&window=1h", 200, 404},
		{"GET", "/v1/events/login/explain?feature=ip:192.0.2.1", 404, 200},
		{"DELETE", "/v1/events/login/counters?feature=ip:192.0.2.1", 404, 204},
		{"DELETE", "/v1/events/login/override?feature=ip:192.0.2.1", 404, 200},
		{"GET", "/v1/overrides", 404, 200},
		{"GET", "/v1/top", 404, 200},
		{"GET", "/readyz", 404, 200},
		{"GET", "/metrics", 404, 404},
		{"GET", "/debug/pprof/", 404, 404},
		{"GET", "/ui/", 404, 404},
	} {
		assert.Equal(t, route.client, serveOnce(clients, httptest.NewRequest(route.method, route.path, nil)).Code, "clients: %s %s", route.method, route.path)
		assert.Equal(t, route.operator, serveOnce(operators, httptest.NewRequest(route.method, route.path, nil)).Code, "operators: %s %s", route.method, route.path)
	}
	shown := page.New(l, page.Config{})
	assert.Equal(t, 200, serveOnce(shown, httptest.NewRequest("GET", "/ui/", nil)).Code)
	foreign := httptest.NewRequest("POST", "/ui/reset", nil)
	foreign.Header.Set("Sec-Fetch-Site", "cross-site")
	assert.Equal(t, 403, serveOnce(shown, foreign).Code)
}

// A program's registry has the metrics of a limiter, once.
func TestMetrics(t *testing.T) {
	onEach(t, func(t *testing.T, options ...counterd.Option) {
		l, registry := start(t, parse(t, someRules), options...), prometheus.NewRegistry()
		require.NoError(t, metrics.Register(registry, l))
		onRequest, err := metrics.Requests(registry)
		require.NoError(t, err)
		r := httptest.NewRequest("GET", "/v1/events/login/check?feature=ip:192.0.2.1", nil)
		assert.Equal(t, 200, serveOnce(api.NewHandler(l, api.Config{OnRequest: onRequest}), r).Code)
		require.NoError(t, second(l.Hit(ctx, "login", visitor)))
		text := serveOnce(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), httptest.NewRequest("GET", "/metrics", nil)).Body.String()
		assert.Contains(t, text, `counterd_decisions_total{call="hit",event="login",verdict="allowed"} 1`)
		assert.Contains(t, text, `counterd_http_requests_total{code="200",method="GET",route="/v1/events/{event}/check"} 1`)
		assert.NotContains(t, text, "go_goroutines")
		require.Error(t, metrics.Register(registry, l))
	})
}
