package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/httpdecision"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/store/storetest"
	"github.com/counterd/counterd/memcache"
)

func parseRules(t *testing.T, yaml string) *events.Rules {
	t.Helper()
	rules, err := rulesfile.Parse([]byte(yaml))
	require.NoError(t, err)
	return rules
}

// serviceOf returns a service on the limiter.
func serviceOf(decider *limiter.Limiter, rules func() *events.Rules) *service.Service {
	return newService(service.Config{Limiter: decider, Rules: rules})
}

func newTestLimiter(t *testing.T, store store.Store) *limiter.Limiter {
	t.Helper()
	// The machine that runs the tests may be busy: a wide grace keeps hits trusted.
	decider, err := limiter.New(limiter.Config{Timeout: 20 * time.Second}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: store, Clock: clock, Grace: 40 * time.Second}))
	require.NoError(t, err)
	return decider
}

// gate is a service behind a middleware, with what is seen of the two.
type gate struct {
	http.Handler
	log    *bytes.Buffer
	served atomic.Int64
}

// newGate puts a service that says ok behind a middleware for the event e of those
// rules.
func newGate(t *testing.T, yaml string, change func(*httpdecision.MiddlewareConfig)) *gate {
	t.Helper()
	g := &gate{log: &bytes.Buffer{}}
	rules := parseRules(t, yaml)
	config := httpdecision.MiddlewareConfig{
		Service: serviceOf(newTestLimiter(t, newStore()), func() *events.Rules { return rules }),
		Event:   "e",
		Log:     slog.New(slog.NewTextHandler(g.log, nil)),
	}
	if change != nil {
		change(&config)
	}
	middleware, err := httpdecision.NewMiddleware(config)
	require.NoError(t, err)
	g.Handler = middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.served.Add(1)
		fmt.Fprint(w, "ok")
	}))
	return g
}

// get makes a request of that peer with headers given as name and value.
func get(h http.Handler, peer string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = peer + ":4711"
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// denialOf returns the problem document of a denial with that status.
func denialOf(t *testing.T, w *httptest.ResponseRecorder, status int) (d wire.Denial) {
	t.Helper()
	require.Equal(t, status, w.Code, w.Body)
	require.Equal(t, wire.TypeProblem, w.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &d, json.RejectUnknownMembers(true)))
	require.Equal(t, wire.TypeQuotaExceeded, d.Type)
	require.Equal(t, status, d.Status)
	require.False(t, d.Allowed)
	return d
}

func TestMiddleware(t *testing.T) {
	g := newGate(t, "events: {e: {limits: [{per: ip, rate: [2/m, 100/d]}]}}", nil)
	for i := range 2 {
		w := get(g, "203.0.113.9")
		assert.Equal(t, 200, w.Code)
		assert.Equal(t, "ok", w.Body.String())
		assert.Equal(t, `"ip-2-per-1m";q=2;w=60, "ip-100-per-24h";q=100;w=86400`, w.Header().Get("RateLimit-Policy"))
		assert.Contains(t, w.Header().Get("RateLimit"), fmt.Sprintf(`"ip-2-per-1m";r=%d`, 1-i))
		assert.Empty(t, w.Header().Get("Retry-After"))
	}
	w := get(g, "203.0.113.9")
	d := denialOf(t, w, 429)
	assert.Equal(t, []string{"ip-2-per-1m"}, d.ViolatedPolicies)
	assert.Equal(t, "60", w.Header().Get("Retry-After"))
	assert.Contains(t, w.Header().Get("RateLimit"), `"ip-2-per-1m";r=0;t=60`)
	assert.Equal(t, int64(2), g.served.Load())
	assert.Equal(t, 200, get(g, "203.0.113.8").Code, "another address")
	assert.Empty(t, g.log.String())
}

// Address and user together: the limits that are per what a request carries
// decide it, all of them.
func TestMiddlewareCombinesFeatures(t *testing.T) {
	g := newGate(t, `
events:
  e:
    limits:
      - {per: [], rate: 6/m}
      - {per: ip, rate: 4/m}
      - {per: user, rate: 2/m}
      - {per: [ip, user], rate: 1/m}
    from: {user: header X-User}
`, nil)
	assert.Equal(t, 200, get(g, "203.0.113.9", "X-User", "a").Code)
	d := denialOf(t, get(g, "203.0.113.9", "X-User", "a"), 429)
	assert.Equal(t, []string{"ip+user-1-per-1m"}, d.ViolatedPolicies)
	assert.Equal(t, 200, get(g, "203.0.113.8", "X-User", "a").Code)
	d = denialOf(t, get(g, "203.0.113.7", "X-User", "a"), 429)
	assert.Equal(t, []string{"user-2-per-1m"}, d.ViolatedPolicies)
	for range 3 {
		assert.Equal(t, 200, get(g, "203.0.113.9").Code, "no user: the limits per user do not apply")
	}
	d = denialOf(t, get(g, "203.0.113.9", "X-User", "b"), 429)
	assert.Equal(t, []string{"ip-4-per-1m"}, d.ViolatedPolicies)
	assert.Equal(t, 200, get(g, "203.0.113.6").Code)
	d = denialOf(t, get(g, "203.0.113.5", "X-User", "c"), 429)
	require.Len(t, d.ViolatedPolicies, 1, "the whole service")
	assert.Empty(t, d.Limits[0].Feature)
	assert.Equal(t, int64(6), g.served.Load())
}

func TestMiddlewareSources(t *testing.T) {
	const limit = "{e: {limits: [{per: ip, rate: 1/m}]"
	for name, test := range map[string]struct {
		rules  string
		own    map[string]httpdecision.Extractor
		header []string // of a request by 10.0.0.1
		want   string   // the feature that was counted
	}{
		"peer":                 {"{events: " + limit + "}}}", nil, []string{"X-Forwarded-For", "203.0.113.9"}, "ip:10.0.0.1"},
		"forwarded":            {"{events: " + limit + ", from: {ip: forwarded}}}, trusted_proxies: 10.0.0.0/8}", nil, []string{"X-Forwarded-For", "198.51.100.1, 203.0.113.9"}, "ip:203.0.113.9"},
		"forwarded, not by it": {"{events: " + limit + ", from: {ip: forwarded}}}, trusted_proxies: 10.0.0.2}", nil, []string{"X-Forwarded-For", "203.0.113.9"}, "ip:10.0.0.1"},
		"header":               {"{events: " + limit + ", from: {ip: header X-Real-IP}}}}", nil, []string{"X-Real-IP", "203.0.113.9"}, "ip:203.0.113.9"},
		"bearer":               {"events: {e: {limits: [{per: user, rate: 1/m}]}}", nil, []string{"Authorization", "Bearer abc"}, "user:abc"},
		"own instead": {
			"{events: " + limit + "}}}",
			map[string]httpdecision.Extractor{"ip": httpdecision.FromHeader("X-Real-IP")}, []string{"X-Real-IP", "2001:db8::1"}, "ip:2001:db8::/64",
		},
		"own of another kind": {
			"events: {e: {limits: [{per: tenant, rate: 1/m}]}}",
			map[string]httpdecision.Extractor{"tenant": func(r *http.Request) (string, error) { return r.Host, nil }}, nil, "tenant:example.com",
		},
		"own, trusting others": {
			"{events: " + limit + ", from: {ip: forwarded}}}, trusted_proxies: 192.0.2.0/24}",
			map[string]httpdecision.Extractor{"ip": httpdecision.FromForwarded(proxies)}, []string{"X-Forwarded-For", "203.0.113.9"}, "ip:203.0.113.9",
		},
		"the whole service": {"events: {e: {limits: [{per: [], rate: 1/m}]}}", nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t, test.rules, func(c *httpdecision.MiddlewareConfig) { c.From = test.own })
			clear(test.own) // which is the test's again
			require.Equal(t, 200, get(g, "10.0.0.1", test.header...).Code)
			d := denialOf(t, get(g, "10.0.0.1", test.header...), 429)
			assert.Equal(t, test.want, d.Limits[0].Feature)
		})
	}
}

// An extractor that fails is the service's fault, not the client's: it is not
// told why.
func TestMiddlewareExtractorThatFails(t *testing.T) {
	failure := errors.New("the sessions are down")
	g := newGate(t, "events: {e: {limits: [{per: user, rate: 1/m}, {per: other, rate: 1/m}], from: {other: header X-O}}}", func(c *httpdecision.MiddlewareConfig) {
		c.From = map[string]httpdecision.Extractor{"user": func(*http.Request) (string, error) { return "", failure }}
	})
	w := get(g, "203.0.113.9", "X-O", "1", "X-O", "2")
	assert.Equal(t, 500, w.Code)
	assert.NotContains(t, w.Body.String(), "sessions")
	assert.Contains(t, g.log.String(), "the user of a request: the sessions are down")
	assert.Zero(t, g.served.Load())

	g = newGate(t, "events: {e: {limits: [{per: user, rate: 1/m}]}}", func(c *httpdecision.MiddlewareConfig) {
		c.From = map[string]httpdecision.Extractor{"user": func(*http.Request) (string, error) {
			return "", fmt.Errorf("the session is over (%w)", events.ErrInvalid)
		}}
	})
	assert.Equal(t, `feature of kind "user": the session is over (events: invalid)`, problem(t, get(g, "203.0.113.9"), 400).Detail)
}

func TestMiddlewareCost(t *testing.T) {
	var cost int64
	g := newGate(t, "events: {e: {limits: [{per: ip, rate: 10/m}]}}", func(c *httpdecision.MiddlewareConfig) {
		c.Cost = func(*http.Request) int64 { return cost }
	})
	for _, cost = range []int64{-1, limiter.MaxCost + 1} {
		p := problem(t, get(g, "203.0.113.9"), 400)
		assert.Equal(t, "cost: it is 0 to 1000000", p.Detail)
	}
	cost = 6
	assert.Equal(t, 200, get(g, "203.0.113.9").Code)
	assert.Equal(t, int64(6), denialOf(t, get(g, "203.0.113.9"), 429).Limits[0].Count)
	cost = 4
	assert.Equal(t, 200, get(g, "203.0.113.9").Code)
	cost = 11
	w := get(g, "203.0.113.8")
	assert.Nil(t, denialOf(t, w, 429).RetryAfter)
	assert.Empty(t, w.Header().Values("Retry-After"), "it never fits")
}

func TestMiddlewareEventOf(t *testing.T) {
	g := newGate(t, "events: {read: {limits: [{per: ip, rate: 2/m}]}, write: {limits: [{per: ip, rate: 1/m}]}}", func(c *httpdecision.MiddlewareConfig) {
		c.Event = ""
		c.EventOf = func(r *http.Request) string { return r.Header.Get("X-Event") }
	})
	for event, want := range map[string][]int{
		"": {200, 200, 200, 200}, "read": {200, 200, 429}, "write": {200, 429}, "other": {500, 500},
	} {
		for i, status := range want {
			w := get(g, "203.0.113.9", "X-Event", event)
			assert.Equal(t, status, w.Code, "%q %d", event, i)
			if event == "" {
				assert.Empty(t, w.Header().Get("RateLimit"))
			}
		}
	}
	assert.Equal(t, int64(4+2+1), g.served.Load())
	assert.Contains(t, g.log.String(), "the rules in force do not name the event")
}

func TestMiddlewareOnDenied(t *testing.T) {
	g := newGate(t, "events: {e: {limits: [{per: ip, rate: 1/m}]}}", func(c *httpdecision.MiddlewareConfig) {
		c.OnDenied = func(w http.ResponseWriter, r *http.Request, d events.Decision) {
			same, found := httpdecision.DecisionOf(r.Context())
			assert.True(t, found)
			assert.Equal(t, d, same)
			http.Error(w, fmt.Sprintf("come back in %ds", engine.CeilSeconds(d.RetryAfter)), http.StatusServiceUnavailable)
		}
	})
	assert.Equal(t, 200, get(g, "203.0.113.9").Code)
	w := get(g, "203.0.113.9")
	assert.Equal(t, 503, w.Code)
	assert.Equal(t, "come back in 60s\n", w.Body.String())
	assert.Equal(t, "60", w.Header().Get("Retry-After"))
	assert.Contains(t, w.Header().Get("RateLimit"), "r=0;t=60")
	assert.Equal(t, int64(1), g.served.Load())
}

func TestDecisionOf(t *testing.T) {
	_, found := httpdecision.DecisionOf(t.Context())
	assert.False(t, found)

	rules := parseRules(t, "events: {e: {limits: [{per: ip, rate: 3/m}]}, inner: {limits: [{per: ip, rate: 9/m}]}}")
	config := httpdecision.MiddlewareConfig{
		Service: serviceOf(newTestLimiter(t, newStore()), func() *events.Rules { return rules }), Event: "e",
	}
	outer, err := httpdecision.NewMiddleware(config)
	require.NoError(t, err)
	config.Event = "inner"
	inner, err := httpdecision.NewMiddleware(config)
	require.NoError(t, err)
	remaining := func(r *http.Request) int64 {
		d, found := httpdecision.DecisionOf(r.Context())
		assert.True(t, found)
		assert.True(t, d.Allowed)
		return d.Limits[0].Remaining
	}
	h := outer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before := remaining(r)
		inner(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, before, " ", remaining(r))
		})).ServeHTTP(w, r)
	}))
	assert.Equal(t, "2 8", get(h, "203.0.113.9").Body.String())
	assert.Equal(t, "1 7", get(h, "203.0.113.9").Body.String())
}

// pausingStore lets a test act while a hit is on its way.
type pausingStore struct {
	store.Store
	during func()
}

func (s *pausingStore) Do(ctx context.Context, ops ...*store.Op) {
	store.SideBySide(ops, func(op *store.Op) {
		if storetest.IsTrip(op) {
			s.during()
		}
		s.Store.Do(ctx, op)
	})
}

// A client that leaves before its hit is not counted and not served. One that
// leaves in its midst is counted all the same: leaving is no way past a limit.
func TestMiddlewareAndAClientThatLeaves(t *testing.T) {
	store := &pausingStore{Store: memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock}), during: func() {}}
	g := newGate(t, "events: {e: {limits: [{per: ip, rate: 2/m}]}}", func(c *httpdecision.MiddlewareConfig) {
		c.Service = serviceOf(newTestLimiter(t, store), c.Service.Rules)
	})
	ctx, leave := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
	store.during = leave
	for range 2 {
		g.ServeHTTP(httptest.NewRecorder(), r)
	}
	assert.Equal(t, int64(1), g.served.Load(), "the first one only: it left in the midst of its hit")
	assert.Empty(t, g.log.String())

	store.during = func() {}
	w := get(g, "192.0.2.1")
	assert.Equal(t, 200, w.Code)
	assert.Equal(t, `"ip-2-per-1m";r=0`, w.Header().Get("RateLimit"), "the first was counted, the second was not")
	assert.Equal(t, 429, get(g, "192.0.2.1").Code)
}

// A handler that panics has been counted, once, and its panic goes on.
func TestMiddlewareAndAHandlerThatPanics(t *testing.T) {
	rules := parseRules(t, "events: {e: {limits: [{per: ip, rate: 3/m}]}}")
	middleware, err := httpdecision.NewMiddleware(httpdecision.MiddlewareConfig{
		Service: serviceOf(newTestLimiter(t, newStore()), func() *events.Rules { return rules }), Event: "e",
	})
	require.NoError(t, err)
	panicking := true
	h := middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if panicking {
			panic(http.ErrAbortHandler)
		}
	}))
	for range 2 {
		assert.PanicsWithValue(t, http.ErrAbortHandler, func() { get(h, "203.0.113.9") })
	}
	panicking = false
	w := get(h, "203.0.113.9")
	assert.Equal(t, 200, w.Code)
	assert.Equal(t, `"ip-3-per-1m";r=0`, w.Header().Get("RateLimit"))
	assert.Equal(t, 429, get(h, "203.0.113.9").Code)
}

// The middleware hands on the very writer it was given, so what it can do beyond
// writing is not lost, and a request that has all it had.
func TestMiddlewareInRouters(t *testing.T) {
	rules := parseRules(t, "events: {e: {limits: [{per: id, rate: 1/m}]}}")
	config := httpdecision.MiddlewareConfig{
		Service: serviceOf(newTestLimiter(t, newStore()), func() *events.Rules { return rules }), Event: "e",
	}
	t.Run("http.ServeMux", func(t *testing.T) {
		config.From = map[string]httpdecision.Extractor{"id": func(r *http.Request) (string, error) { return r.PathValue("id"), nil }}
		limit, err := httpdecision.NewMiddleware(config)
		require.NoError(t, err)
		router := http.NewServeMux()
		var given, got http.ResponseWriter
		limited := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got = w
			fmt.Fprint(w, r.Pattern, r.PathValue("id"))
		}))
		router.HandleFunc("GET /std/{id}", func(w http.ResponseWriter, r *http.Request) {
			given = w
			limited.ServeHTTP(w, r)
		})
		assert.Equal(t, "GET /std/{id}9", request(t, router, "GET", "/std/9", "").Body.String())
		assert.Same(t, given, got)
		assert.Equal(t, 429, request(t, router, "GET", "/std/9", "").Code)
	})
}

func TestNewMiddlewareReportsAllFaults(t *testing.T) {
	rules := parseRules(t, `
events:
  e: {limits: [{per: ip, rate: 1/m}]}
  plain: {}
  login: {limits: [{per: email, rate: 1/m}, {per: [ip, tenant], rate: 1/m}]}
  said: {limits: [{per: ip, rate: 1/m}, {per: email, rate: 1/m}], from: {email: none}}
`)
	inForce := func() *events.Rules { return rules }
	decider := newTestLimiter(t, newStore())
	forwarded := &events.Rules{Events: map[string]*events.Event{"e": {
		Name: "e", Rules: events.Example().Events["url_shorten"].Rules, From: map[string]events.Source{"ip": {Place: events.FromForwarded}},
	}}}
	for name, test := range map[string]struct {
		config httpdecision.MiddlewareConfig
		faults []string
	}{
		"nothing": {httpdecision.MiddlewareConfig{}, []string{"Service is missing", "Event is missing, and so is EventOf"}},
		"both":    {httpdecision.MiddlewareConfig{Service: serviceOf(decider, inForce), Event: "e", EventOf: func(*http.Request) string { return "" }}, []string{"both given"}},
		"no rules": {
			httpdecision.MiddlewareConfig{Service: serviceOf(decider, func() *events.Rules { return nil }), Event: "e"}, []string{"Service has no rules in force"},
		},
		"unknown event": {httpdecision.MiddlewareConfig{Service: serviceOf(decider, inForce), Event: "f"}, []string{`the rules do not name "f"`}},
		"no limits":     {httpdecision.MiddlewareConfig{Service: serviceOf(decider, inForce), Event: "plain"}, []string{"plain has no limits"}},
		"no sources": {
			httpdecision.MiddlewareConfig{Service: serviceOf(decider, inForce), Event: "login"},
			[]string{"login has limits per email", "login has limits per tenant"},
		},
		"no proxies": {
			httpdecision.MiddlewareConfig{Service: serviceOf(decider, func() *events.Rules { return forwarded }), Event: "e"}, []string{"believed from TrustedProxies only"},
		},
		"kinds": {
			httpdecision.MiddlewareConfig{Service: serviceOf(decider, inForce), Event: "e", From: map[string]httpdecision.Extractor{"User": httpdecision.FromBearer, "ip": nil}},
			[]string{`From: "User": a kind is 1 to 32`, `From: "ip" has no extractor`},
		},
		"said":                  {httpdecision.MiddlewareConfig{Service: serviceOf(decider, inForce), Event: "said"}, nil},
		"reserves for too long": {httpdecision.MiddlewareConfig{Service: serviceOf(decider, inForce), Event: "e", Reserve: 25 * time.Hour}, []string{"Reserve: "}},
		"reserves unsealed": {
			httpdecision.MiddlewareConfig{
				Service: newService(service.Config{Limiter: decider, Rules: inForce, Unsealed: true}), Event: "e", Reserve: time.Minute,
			}, []string{"tokens without a key secret"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			middleware, err := httpdecision.NewMiddleware(test.config)
			if test.faults == nil {
				assert.NoError(t, err)
				assert.NotNil(t, middleware)
				return
			}
			require.Error(t, err)
			assert.Nil(t, middleware)
			lines := strings.Split(err.Error(), "\n")
			require.Len(t, lines, len(test.faults), err)
			for i, fault := range test.faults {
				assert.Contains(t, lines[i], "api: middleware: ")
				assert.Contains(t, lines[i], fault)
			}
		})
	}
}

func BenchmarkMiddleware(b *testing.B) {
	rules, err := rulesfile.Parse([]byte("{events: {e: {limits: [{per: ip, rate: 100000000/m}], from: {ip: forwarded}}}, trusted_proxies: 10.0.0.0/8}"))
	require.NoError(b, err)
	decider, err := limiter.New(limiter.Config{Timeout: 20 * time.Second}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: memcache.NewEmbedded(memcache.EmbeddedConfig{}), Clock: time.Now, Grace: 40 * time.Second}))
	require.NoError(b, err)
	middleware, err := httpdecision.NewMiddleware(httpdecision.MiddlewareConfig{Service: serviceOf(decider, func() *events.Rules { return rules }), Event: "e"})
	require.NoError(b, err)
	h := middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := from("10.0.0.1:1", "X-Forwarded-For", "198.51.100.1, 203.0.113.9, 10.0.0.2")
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
}

// Of an event with methods the middleware limits requests of these. Others are served.
func TestMiddlewareMethods(t *testing.T) {
	g := newGate(t, "events: {e: {methods: [POST, DELETE], limits: [{per: ip, rate: 1/m}]}}", nil)
	do := func(method string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, "/", nil)
		r.Header.Set("X-Forwarded-Method", "GET") // is a proxy's word, and this is none
		g.ServeHTTP(w, r)
		return w
	}
	for range 3 {
		for _, method := range []string{"GET", "HEAD", "PUT", "OPTIONS"} {
			w := do(method)
			assert.Equal(t, 200, w.Code, method)
			assert.Empty(t, w.Header().Get("RateLimit"), method)
			assert.Empty(t, w.Header().Get("RateLimit-Policy"), method)
		}
	}
	assert.Equal(t, `"ip-1-per-1m";r=0`, do("DELETE").Header().Get("RateLimit"))
	denialOf(t, do("POST"), 429)
	denialOf(t, do("post"), 429)
	assert.Equal(t, 200, do("GET").Code)
	assert.Equal(t, int64(14), g.served.Load())
}
