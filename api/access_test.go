package api_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/overrides"
	"github.com/counterd/counterd/internal/rls/rlsconfig"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/memcache"
)

// secret is a token for the routes of a class.
func secret(class string) string { return "the-secret-of-" + class + "-1234" }

var tokenClasses = []string{"decide", "read", "see", "increment", "reset", "override", "rules", "operate"}

func hash(secret string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(secret))) }

func parseTokens(t testing.TB, text string) *service.Tokens {
	t.Helper()
	tokens, err := service.ParseTokens([]byte(text))
	require.NoError(t, err)
	return tokens
}

// guarded is a handler that wants tokens: of each class there is one, of that name.
type guarded struct {
	config   api.ServerConfig
	client   http.Handler
	admin    http.Handler
	store    *memcache.Embedded
	log      bytes.Buffer
	tokens   atomic.Pointer[service.Tokens]
	loads    atomic.Int64 // how often the rules were asked for
	refusals service.Refusals
}

func newGuarded(t *testing.T) *guarded {
	g := &guarded{store: memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock})}
	var text strings.Builder
	for _, class := range tokenClasses {
		fmt.Fprintf(&text, "%s %s %s\n", class, class, secret(class))
	}
	for _, class := range []string{"reset", "override"} {
		fmt.Fprintf(&text, "see-%s see,%s %s\n", class, class, secret("see-"+class))
	}
	g.tokens.Store(parseTokens(t, text.String()))
	decider, err := limiter.New(limiter.Config{Timeout: 20 * time.Second}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: g.store, Clock: clock, Grace: 40 * time.Second}))
	require.NoError(t, err)
	all := testRules()
	all.Events["authorized"] = &events.Event{
		Name:  "authorized",
		Rules: []events.Rule{{Per: []string{}, Limits: []events.Limit{{Name: "all", N: 1000, Window: 24 * time.Hour}}}},
	}
	domains, err := rlsconfig.Parse([]rlsconfig.File{{Text: []byte("domain: shop\ndescriptors: [{key: Client, rate_limit: {unit: day, requests_per_unit: 5}}]")}})
	require.NoError(t, err)
	maps.Copy(all.Events, domains.Rules().Events)
	set := overrides.Start(t.Context(), overrides.Config{Store: g.store, Alone: true, Rules: func() *events.Rules { return all }, Clock: clock})
	t.Cleanup(set.Close)
	said := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}
	g.config = api.ServerConfig{
		Service: newService(service.Config{
			Rules: func() *events.Rules {
				g.loads.Add(1)
				return all
			},
			Counters:  counting.New(counting.Config{}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: g.store, Clock: clock})),
			Limiter:   decider,
			Overrides: set,
		}),
		Gate:     service.NewGate(service.GateConfig{Tokens: g.tokens.Load, Refusals: &g.refusals}),
		Metrics:  said("metrics"),
		Profiles: said("profiles"),
		Page:     said("page"),
		RLS:      said("rls"),
		Log:      slog.New(slog.NewTextHandler(&g.log, nil)),
	}
	g.client, g.admin = newDescribed(g.config), newDescribedAdmin(g.config)
	return g
}

// asks is a request that does its route's work.
type asks struct{ class, method, target, body string }

// isForm reports whether the route takes a form of the page: it needs the class see, too.
func (a asks) isForm() bool { return strings.HasPrefix(a.target, "/ui") && a.class != "see" }

// secret is a token for the route.
func (a asks) secret() string {
	if a.isForm() {
		return secret("see-" + a.class)
	}
	return secret(a.class)
}

// someReservation returns the reservation of a hit of another address, on another store.
func someReservation() string {
	s := newService(service.Config{Rules: testRules})
	event, err := s.Event("url_shorten")
	if err != nil {
		panic(err)
	}
	d, err := s.Reserve(context.Background(), event, events.Features{"ip": "203.0.113.200"}, 1, time.Hour)
	if err != nil {
		panic(err)
	}
	return d.Reservation
}

// classed are all routes there are, each with a request that its class may make.
var classed = map[string]asks{
	"/v1/events/{event}/hit":       {"decide", "POST", "/v1/events/url_shorten/hit", who},
	"/v1/batch":                    {"decide", "POST", "/v1/batch", `{"hits": [` + goodHit + `]}`},
	"/v1/settle":                   {"decide", "POST", "/v1/settle", `{"reservation": "` + someReservation() + `", "cost": 0}`},
	"/v1/events/{event}/check":     {"decide", "GET", "/v1/events/url_shorten/check?feature=ip:203.0.113.9", ""},
	"/v1/events/{event}/explain":   {"see", "GET", "/v1/events/url_shorten/explain?feature=ip:203.0.113.9", ""},
	"/v1/authorize/{event}":        {"decide", "PUT", "/v1/authorize/authorized", ""},
	"/v1/events/{event}/count":     {"read", "GET", url24h + "203.0.113.9", ""},
	"/v1/events/{event}/history":   {"read", "GET", "/v1/events/url_shorten/history?level=hour&feature=ip:203.0.113.9", ""},
	"/v1/top":                      {"see", "GET", "/v1/top", ""},
	"/v1/events/{event}/increment": {"increment", "POST", "/v1/events/plain/increment", who},
	"/v1/events/{event}/counters":  {"reset", "DELETE", "/v1/events/export/counters?feature=user:42", ""},
	"/v1/overrides":                {"see", "GET", "/v1/overrides", ""},
	"/v1/events/{event}/override":  {"override", "POST", "/v1/events/url_shorten/override", `{"features": {"ip": "203.0.113.9"}, "verdict": "allow", "for": "1h"}`},
	"/v1/events":                   {"rules", "GET", "/v1/events", ""},
	"/v1/events/{event}":           {"rules", "GET", "/v1/events/plain", ""},

	"/v1/events/rls/{domain:.+}/explain":  {"see", "GET", "/v1/events/rls/shop/explain?feature=Client:a", ""},
	"/v1/events/rls/{domain:.+}/counters": {"reset", "DELETE", "/v1/events/rls/shop/counters?feature=Client:a", ""},
	"/v1/events/rls/{domain:.+}/override": {"override", "POST", "/v1/events/rls/shop/override", `{"features": {"Client": "a"}, "verdict": "allow", "for": "1h"}`},
	"/v1/events/rls/{domain:.+}":          {"rules", "GET", "/v1/events/rls/shop", ""},

	"/metrics":                  {"operate", "GET", "/metrics", ""},
	"/debug/pprof/{profile:.*}": {"operate", "GET", "/debug/pprof/heap", ""},
	"/ui{page:(?:/.*)?}":        {"see", "GET", "/ui/", ""},
	"/ui/reset":                 {"reset", "POST", "/ui/reset", ""},
	"/ui/override":              {"override", "POST", "/ui/override", ""},
	"/json":                     {"decide", "POST", "/json", `{}`},
	"/healthcheck":              {"anyone", "GET", "/healthcheck", ""},
	"/":                         {"anyone", "GET", "/", ""},
	"/openapi.json":             {"anyone", "GET", "/openapi.json", ""},
	"/healthz":                  {"anyone", "GET", "/healthz", ""},
	"/readyz":                   {"anyone", "GET", "/readyz", ""},
}

// untouchable is a body that must not be read.
type untouchable struct{ t *testing.T }

func (u untouchable) Read([]byte) (int, error) {
	assert.Fail(u.t, "the body is read of a request that is refused")
	return 0, io.EOF
}

// asWith makes a request with that token, by the usual header; an empty one: without.
func asWith(t *testing.T, h http.Handler, method, target string, body io.Reader, token string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, body)
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Each route there is has a class, and it is this one.
func TestEveryRouteHasItsClass(t *testing.T) {
	clients, admin, err := api.RoutesOf(newGuarded(t).config)
	require.NoError(t, err)
	found := map[string]string{}
	for _, route := range slices.Concat(clients, admin) {
		found[route.Path] = route.Class
	}
	want := map[string]string{}
	for path, route := range classed {
		want[path] = route.class
	}
	assert.Equal(t, want, found)
	for _, route := range admin {
		assert.Contains(t, []string{"anyone", "operate", "see", "reset", "override"}, route.Class, route.Path)
	}
	assert.Len(t, admin, 9)
}

// Without a token that is good for its class no route does anything: the body is not read,
// the event not looked up, nothing counted. All methods of all routes are tried.
func TestNothingIsDoneWithoutItsToken(t *testing.T) {
	g := newGuarded(t)
	clients, admin, err := api.RoutesOf(g.config)
	require.NoError(t, err)
	want := map[string]int64{}
	refuse := func(h http.Handler, method string, route asks, token, reason string, status int, challenge string) {
		w := asWith(t, h, method, route.target, untouchable{t}, token)
		p := problem(t, w, status)
		assert.Equal(t, challenge, w.Header().Get("WWW-Authenticate"))
		assert.Empty(t, p.Errors)
		assert.NotContains(t, w.Body.String(), "secret")
		want[route.class+" "+reason]++
	}
	tried := 0
	for i, one := range slices.Concat(clients, admin) {
		h := g.client
		if i >= len(clients) {
			h = g.admin
		}
		route := classed[one.Path]
		if route.class == "anyone" {
			assert.Equal(t, 200, asWith(t, h, "GET", route.target, nil, "").Code, route.target)
			continue
		}
		methods := one.Methods
		if len(methods) == 0 {
			methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"}
		}
		for _, method := range methods {
			tried++
			missing, unknown := `Bearer realm="counterd"`, `Bearer realm="counterd", error="invalid_token"`
			if strings.HasPrefix(route.target, "/ui") {
				missing, unknown = `Basic realm="counterd"`, `Basic realm="counterd"`
			}
			refuse(h, method, route, "", "missing", 401, missing)
			refuse(h, method, route, "no-caller-has-this-token", "unknown", 401, unknown)
			for _, class := range tokenClasses {
				if class != route.class {
					refuse(h, method, route, secret(class), "forbidden", 403,
						fmt.Sprintf(`Bearer realm="counterd", error="insufficient_scope", scope="%s"`, route.class))
				}
			}
			if route.isForm() {
				own := secret(route.class)
				route.class = "see"
				refuse(h, method, route, own, "forbidden", 403, `Bearer realm="counterd", error="insufficient_scope", scope="see"`)
			}
		}
	}
	require.Greater(t, tried, 20)
	assert.Zero(t, g.store.Bytes(), "nothing is counted")
	assert.Zero(t, g.loads.Load(), "no event is looked up")
	counted := map[string]int64{}
	for _, refused := range g.refusals.All() {
		if refused.N > 0 {
			counted[fmt.Sprint(refused.Class, " ", refused.Reason)] = refused.N
		}
	}
	assert.Equal(t, want, counted)
	assert.Len(t, g.refusals.All(), 3*len(tokenClasses))

	assert.Contains(t, g.log.String(), "reason=forbidden")
	assert.Regexp(t, `client=(decide|read|see|increment|reset|rules|operate) `, g.log.String(), "the name is logged")
	assert.NotContains(t, g.log.String(), "secret")
	assert.NotContains(t, g.log.String(), "no-caller-has")
}

// A browser gives the token as a password, and only the page takes it so.
func TestATokenAsPassword(t *testing.T) {
	g := newGuarded(t)
	status := func(h http.Handler, target, password string, more ...string) int {
		r := httptest.NewRequestWithContext(t.Context(), "GET", target, nil)
		r.SetBasicAuth("anyone", password)
		for _, value := range more {
			r.Header.Add("Authorization", value)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for _, h := range []http.Handler{g.client, g.admin} {
		assert.Equal(t, 200, status(h, "/ui/feature?event=e", secret("see")))
		assert.Equal(t, 403, status(h, "/ui/", secret("operate")))
		g.log.Reset()
		assert.Equal(t, 401, status(h, "/ui/", ""))
		assert.Equal(t, 401, asWith(t, h, "GET", "/ui/", nil, "").Code)
		assert.Empty(t, g.log.String(), "a browser is asked for the password first")
		assert.Equal(t, 401, status(h, "/ui/", "no-caller-has-this-token"))
		assert.Equal(t, 401, status(h, "/ui/", secret("see"), "Bearer "+secret("see")), "which one is meant is open")
		assert.Equal(t, 401, status(h, "/metrics", secret("operate")))
	}
	assert.Equal(t, 401, status(g.client, classed["/v1/events/{event}/explain"].target, secret("see")))
}

// A reset by hand is logged, with the name of its token: one through the contract's route, and one of the page. One
// that did nothing is not.
func TestResetsAreLogged(t *testing.T) {
	g := newGuarded(t)
	counters := classed["/v1/events/{event}/counters"].target
	g.config.Page = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		event, err := g.config.Service.Event("export")
		require.NoError(t, err)
		counter, err := event.Counter(events.Features{"user": "43\nlevel=INFO"})
		require.NoError(t, err)
		assert.NoError(t, g.config.Service.Reset(r.Context(), counter))
	})
	h := newDescribed(g.config)
	asWith(t, h, "DELETE", counters+"&all=true", nil, secret("reset"))
	asWith(t, h, "DELETE", counters, nil, secret("read"))
	assert.NotContains(t, g.log.String(), "counter reset")
	g.log.Reset()
	assert.Equal(t, 204, asWith(t, h, "DELETE", counters, nil, secret("reset")).Code)
	assert.Regexp(t, `level=INFO msg="counter reset" request_id=\w+ client=reset event=export feature=user:42\n`, g.log.String())
	assert.Equal(t, 200, asWith(t, h, "POST", "/ui/reset", nil, secret("see-reset")).Code)
	assert.Equal(t, 2, strings.Count(g.log.String(), "\n"), "no value makes a line of its own")
	assert.Contains(t, g.log.String(), `feature="user:43\nlevel=INFO"`)
	g.log.Reset()
	asWith(t, h, "GET", "/ui/", nil, secret("see"))
	assert.Empty(t, g.log.String(), "a route that is not for resets has no such log")
}

// A form that fails is answered with the page of its feature: a token that may not see the page gets none of it, and
// nothing is changed.
func TestFormsThatFailShowThePageToThoseWithSee(t *testing.T) {
	g := newGuarded(t)
	asked := 0
	g.config.Page = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(503)
		_, _ = io.WriteString(w, "the limits of user:bob")
	})
	for _, h := range []http.Handler{newDescribed(g.config), newDescribedAdmin(g.config)} {
		for _, class := range []string{"reset", "override"} {
			target := "/ui/" + class
			for alone, scope := range map[string]string{class: "see", "see": class} {
				asked = 0
				w := asWith(t, h, "POST", target, untouchable{t}, secret(alone))
				problem(t, w, 403)
				assert.NotContains(t, w.Body.String(), "bob")
				assert.Contains(t, w.Header().Get("WWW-Authenticate"), `scope="`+scope+`"`, "%s with %s", target, alone)
				assert.Zero(t, asked, "%s with %s", target, alone)
			}
			w := asWith(t, h, "POST", target, nil, secret("see-"+class))
			assert.Equal(t, 503, w.Code)
			assert.Equal(t, "the limits of user:bob", w.Body.String())
		}
	}
}

// Refusals are logged once a second for each reason, with what else there were.
func TestRefusalsAreLoggedSparsely(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGuarded(t)
		for range 10 {
			asWith(t, g.client, "GET", "/v1/events", nil, "")
			asWith(t, g.client, "POST", "/v1/batch", nil, secret("read"))
		}
		assert.Equal(t, 1, strings.Count(g.log.String(), "reason=missing"))
		assert.Equal(t, 1, strings.Count(g.log.String(), "reason=forbidden class=decide client=read method=POST suppressed=0"))
		time.Sleep(time.Second)
		asWith(t, g.client, "GET", "/v1/events", nil, "")
		assert.Contains(t, g.log.String(), `reason=missing class=rules client="" method=GET suppressed=9`)
		time.Sleep(time.Second)
		asWith(t, g.client, "203.0.113.77", "/v1/authorize/url_shorten", nil, "")
		assert.Contains(t, g.log.String(), "method=other", "what the client calls it may be anything")
	})
}

// One token may be good for several classes, or for all.
func TestClassesOfAToken(t *testing.T) {
	g := newGuarded(t)
	g.tokens.Store(parseTokens(t, "a read,reset "+secret("a")+"\nb all "+secret("b")))
	for path, route := range classed {
		status := func(name string) int {
			return asWith(t, g.client, route.method, route.target, strings.NewReader(route.body), secret(name)).Code
		}
		allowed := slices.Contains([]string{"read", "reset", "anyone"}, route.class) && !route.isForm()
		assert.Equal(t, allowed, status("a") != 403, path)
		assert.Less(t, status("b"), 300, path)
	}
}

// The places of a token, and which one counts of several.
func TestWhereATokenStands(t *testing.T) {
	g := newGuarded(t)
	good, other := secret("rules"), secret("read")
	for _, test := range []struct {
		name   string
		header http.Header
		status int
		reason string
	}{
		{"bearer", http.Header{"Authorization": {"Bearer " + good}}, 200, ""},
		{"in small letters, with blanks", http.Header{"Authorization": {"bearer   " + good + " "}}, 200, ""},
		{"of its own", http.Header{"Counterd-Token": {good}}, 200, ""},
		{"before a client's", http.Header{"Counterd-Token": {good}, "Authorization": {"Bearer of-somebody-else-entirely"}}, 200, ""},
		{"before a good one", http.Header{"Counterd-Token": {"no-caller-has-this-token"}, "Authorization": {"Bearer " + good}}, 401, "invalid_token"},
		{"before a good one, and of another class", http.Header{"Counterd-Token": {other}, "Authorization": {"Bearer " + good}}, 403, "insufficient_scope"},
		{"empty, before a good one", http.Header{"Counterd-Token": {""}, "Authorization": {"Bearer " + good}}, 401, "invalid_token"},
		{"twice", http.Header{"Counterd-Token": {good, good}}, 401, "invalid_token"},
		{"bearer, twice", http.Header{"Authorization": {"Bearer " + good, "Bearer " + good}}, 401, "invalid_token"},
		{"bearer, with a scheme", http.Header{"Counterd-Token": {"Bearer " + good}}, 401, "invalid_token"},
		{"bearer of nothing", http.Header{"Authorization": {"Bearer"}}, 401, "invalid_token"},
		{"two tokens", http.Header{"Authorization": {"Bearer " + good + " " + good}}, 401, "invalid_token"},
		{"basic", http.Header{"Authorization": {"Basic " + good}}, 401, ""},
		{"without a scheme", http.Header{"Authorization": {good}}, 401, ""},
		{"empty", http.Header{"Authorization": {""}}, 401, ""},
		{"none", nil, 401, ""},
		{"its sum", http.Header{"Counterd-Token": {hash(good)}}, 401, "invalid_token"},
		{"in the query", http.Header{}, 401, ""},
	} {
		target := "/v1/events"
		if test.name == "in the query" {
			target += "?access_token=" + good
		}
		r := httptest.NewRequestWithContext(t.Context(), "GET", target, nil)
		maps.Copy(r.Header, test.header)
		w := httptest.NewRecorder()
		g.client.ServeHTTP(w, r)
		assert.Equal(t, test.status, w.Code, test.name)
		if test.status == 200 {
			continue
		}
		challenge := w.Header().Get("WWW-Authenticate")
		assert.True(t, strings.HasPrefix(challenge, "Bearer "), test.name)
		if test.reason == "" {
			assert.NotContains(t, challenge, "error", test.name)
		} else {
			assert.Contains(t, challenge, `error="`+test.reason+`"`, test.name)
		}
	}
}

// What is not known is not told apart from what is, beyond its status.
func TestUnknownRoutesNeedNoToken(t *testing.T) {
	g := newGuarded(t)
	problem(t, asWith(t, g.client, "GET", "/v1/nothing", nil, ""), 404)
	problem(t, asWith(t, g.client, "GET", "/v1/events/url_shorten/hit", nil, ""), 405)
	problem(t, asWith(t, g.client, "GET", "/v1/events/unknown", nil, ""), 401)
	problem(t, asWith(t, g.client, "GET", "/v1/events/unknown", nil, secret("rules")), 404)
	problem(t, asWith(t, g.admin, "POST", "/v1/events/url_shorten/hit", strings.NewReader(who), secret("decide")), 404)
}

// Tokens that are replaced are good, or are not, from the next request on.
func TestTokensInForce(t *testing.T) {
	g := newGuarded(t)
	assert.Equal(t, 200, asWith(t, g.client, "GET", "/v1/events", nil, secret("rules")).Code)
	g.tokens.Store(parseTokens(t, "rules rules "+secret("new")))
	assert.Equal(t, 401, asWith(t, g.client, "GET", "/v1/events", nil, secret("rules")).Code)
	assert.Equal(t, 200, asWith(t, g.client, "GET", "/v1/events", nil, secret("new")).Code)
	g.tokens.Store(nil)
	assert.Equal(t, 401, asWith(t, g.client, "GET", "/v1/events", nil, secret("new")).Code, "no tokens are nobody's")
}

// A client that expects a 100-continue before its body gets none.
func TestARefusedBodyIsNotAskedFor(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newPipedClients(t, newGuarded(t).client, nil, impatient)
		conn := c.dial()
		_, err := io.WriteString(conn, postHit+"Content-Length: 100000\r\nExpect: 100-continue\r\n\r\n")
		require.NoError(t, err)
		assert.Equal(t, []int{401}, c.statuses(conn))
	})
}

// Over HTTP/2 a few connections could bring any number of requests: they are bounded as
// well. Probes are answered all the same.
func TestRequestsAreBounded(t *testing.T) {
	g := newGuarded(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	g.config.Gate = service.NewGate(service.GateConfig{MaxRequests: 2})
	g.config.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	})
	h := newDescribed(g.config)
	var waiting sync.WaitGroup
	for range 2 {
		waiting.Go(func() { assert.Equal(t, 200, request(t, h, "GET", "/metrics", "").Code) })
		<-arrived
	}
	w := request(t, h, "POST", "/v1/events/url_shorten/hit", who)
	problem(t, w, 503)
	assert.Equal(t, "1", w.Header().Get("Retry-After"))
	assert.Zero(t, g.store.Bytes(), "nothing is counted")
	assert.Equal(t, 200, request(t, h, "GET", "/healthz", "").Code)
	close(release)
	waiting.Wait()
	assert.Equal(t, 200, request(t, h, "POST", "/v1/events/url_shorten/hit", who).Code)
}

// Strangers take no client's place, whatever they send or do not: neither with probes nor
// with requests that are refused. None of them is waited for.
func TestStrangersShutNobodyOut(t *testing.T) {
	g := newGuarded(t)
	g.config.Gate = service.NewGate(service.GateConfig{Tokens: g.tokens.Load, Refusals: &g.refusals, MaxRequests: 1})
	h := newDescribed(g.config)
	strangers := [][2]string{{"GET", "/healthz"}, {"GET", "/readyz"}, {"GET", "/v1/nothing"}, {"PUT", "/v1/events"}}
	for _, of := range classed {
		if of.target != "/debug/pprof/heap" { // is not there
			strangers = append(strangers, [2]string{of.method, of.target})
		}
	}
	for _, length := range []int64{-1, 2, 100_000, 10 << 20} {
		for _, asked := range strangers {
			r := httptest.NewRequestWithContext(t.Context(), asked[0], asked[1], untouchable{t})
			r.ContentLength = length
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			assert.Contains(t, []int{400, 401, 404, 405, 413}, w.Code, "%s %s", asked, w.Body)
		}
	}
	// With the one place taken, strangers get the same answers as ever.
	arrived, release := make(chan struct{}), make(chan struct{})
	g.config.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-release
	})
	h = newDescribed(g.config)
	var waiting sync.WaitGroup
	waiting.Go(func() { assert.Equal(t, 200, asWith(t, h, "GET", "/metrics", nil, secret("operate")).Code) })
	<-arrived
	problem(t, asWith(t, h, "GET", "/v1/events", nil, ""), 401)
	problem(t, asWith(t, h, "GET", "/v1/events", nil, secret("rules")), 503)
	close(release)
	waiting.Wait()
}

// The same over connections: bodies that never come are not waited for, and meanwhile the
// only place is free.
func TestStrangersOverConnectionsShutNobodyOut(t *testing.T) {
	for proto, two := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(proto, func(t *testing.T) {
			g := newGuarded(t)
			g.config.Gate = service.NewGate(service.GateConfig{Tokens: g.tokens.Load, Refusals: &g.refusals, MaxRequests: 1})
			served := make(chan int, 100)
			g.config.OnRequest = func(_, _ string, status int, _ time.Duration) { served <- status }
			c, newClient := secureClients(t, newDescribed(g.config), 0)
			url := "https://" + c.listener.Addr().String()
			stranger := newClient(two)
			var strangers sync.WaitGroup
			var ends []*io.PipeWriter
			defer func() {
				for _, end := range ends {
					end.Close()
				}
				strangers.Wait()
			}()
			for _, asked := range []struct {
				method, path string
				status       int
			}{
				{"GET", "/healthz", 400}, {"GET", "/readyz", 400}, {"GET", "/v1/nothing", 404}, {"POST", "/v1/events/url_shorten/hit", 401}, {"DELETE", "/v1/events/export/counters", 401},
			} {
				body, never := io.Pipe()
				r, err := http.NewRequestWithContext(t.Context(), asked.method, url+asked.path, body)
				require.NoError(t, err)
				strangers.Go(func() {
					// Over HTTP/1.1 net/http itself waits for the body, on that connection.
					if response, err := stranger.Do(r); err == nil {
						response.Body.Close()
					}
				})
				select {
				case status := <-served:
					assert.Equal(t, asked.status, status, asked.path)
				case <-time.After(longest / 2):
					assert.Fail(t, "the body is waited for", "%s", asked.path)
				}
				ends = append(ends, never)
			}
			client := newClient(two)
			for _, path := range []string{"/healthz", "/readyz"} {
				status, _, err := c.get(client, path)
				require.NoError(t, err)
				assert.Equal(t, 200, status, path)
			}
			r, err := http.NewRequestWithContext(t.Context(), "GET", url+"/v1/events", nil)
			require.NoError(t, err)
			r.Header.Set("Authorization", "Bearer "+secret("rules"))
			response, err := client.Do(r)
			require.NoError(t, err)
			defer response.Body.Close()
			assert.Equal(t, 200, response.StatusCode)
		})
	}
}

// A client that is refused, and closes its connection, has its answer all the same.
func TestARefusalIsHeard(t *testing.T) {
	c := newClients(t, newGuarded(t).client, 0)
	for _, close := range []bool{true, false} {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: close}, Timeout: longest}
		for range 100 {
			response, err := client.Post("http://"+c.listener.Addr().String()+"/v1/events/url_shorten/hit", "application/json", strings.NewReader(strings.Repeat(who, 100)))
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, response.Body)
			require.NoError(t, err)
			response.Body.Close()
			require.Equal(t, 401, response.StatusCode)
		}
		client.CloseIdleConnections()
	}
}

// Only readyz says that the process is about to end.
func TestDraining(t *testing.T) {
	g := newGuarded(t)
	var draining atomic.Bool
	g.config.Health.Drain = draining.Load
	for _, h := range []http.Handler{newDescribed(g.config), newDescribedAdmin(g.config)} {
		draining.Store(false)
		assert.Equal(t, 200, request(t, h, "GET", "/readyz", "").Code)
		draining.Store(true)
		p := problem(t, request(t, h, "GET", "/readyz", ""), 503)
		assert.Contains(t, p.Detail, "about to end")
		assert.Equal(t, 200, request(t, h, "GET", "/healthz", "").Code)
	}
	assert.Equal(t, 200, asWith(t, newDescribed(g.config), "POST", "/v1/events/url_shorten/hit", strings.NewReader(who), secret("decide")).Code)
	assert.Empty(t, g.log.String(), "nobody is woken")
}

// readyz, which wants no token, names servers to operators alone.
func TestDiscreetReadyz(t *testing.T) {
	g := newGuarded(t)
	reachable := true
	g.config.Health.Clock = func() string { return "at least 5.0 s ahead" }
	g.config.Health.Servers = func() []service.ServerState {
		return []service.ServerState{{Name: "10.0.0.1:11211", Reachable: reachable}}
	}
	assert.Contains(t, request(t, newDescribedAdmin(g.config), "GET", "/readyz", "").Body.String(), "10.0.0.1")
	assert.Contains(t, request(t, newDescribedAdmin(g.config), "GET", "/readyz", "").Body.String(), `"clock":"at least 5.0 s ahead"`)
	g.config.Redacted = true
	h := newDescribed(g.config)
	assert.JSONEq(t, `{"status": "ready"}`, request(t, h, "GET", "/readyz", "").Body.String())
	reachable = false
	assert.NotContains(t, problem(t, request(t, h, "GET", "/readyz", ""), 503).Detail, "10.0.0.1")
	g.config.Redacted = false
	assert.Equal(t, "No server of the store answers: 10.0.0.1:11211 is unreachable.",
		problem(t, request(t, newDescribedAdmin(g.config), "GET", "/readyz", ""), 503).Detail)
}
