package api_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/pprof"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/api/page"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/insight/top"
	"github.com/counterd/counterd/internal/overrides"
	"github.com/counterd/counterd/internal/rls"
	"github.com/counterd/counterd/internal/service"
)

// describedPaths are the paths that the description has for a route of another notation.
var describedPaths = map[string][]string{
	"/v1/events/rls/{domain:.+}/explain":  {"/v1/events/rls/{domain}/explain"},
	"/v1/events/rls/{domain:.+}/counters": {"/v1/events/rls/{domain}/counters"},
	"/v1/events/rls/{domain:.+}/override": {"/v1/events/rls/{domain}/override"},
	"/v1/events/rls/{domain:.+}":          {"/v1/events/rls/{domain}"},
	"/ui{page:(?:/.*)?}":                  {"/ui", "/ui/", "/ui/{page}"},
	"/debug/pprof/{profile:.*}":           {"/debug/pprof/", "/debug/pprof/{profile}"},
}

// The description has the routes that there are, with their methods and classes, and no others.
func TestTheDescriptionHasAllRoutes(t *testing.T) {
	clients, admin, err := api.RoutesOf(newGuarded(t).config)
	require.NoError(t, err)
	want := map[string]string{}
	for _, route := range slices.Concat(clients, admin) {
		methods := route.Methods
		if len(methods) == 0 { // it takes any
			methods = []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"}
		}
		class := route.Class
		if strings.HasPrefix(route.Path, "/ui") && class != "see" {
			class += " see"
		}
		paths := describedPaths[route.Path]
		if paths == nil {
			paths = []string{route.Path}
		}
		for _, path := range paths {
			for _, method := range methods {
				if method != http.MethodHead { // it is described as GET
					want[method+" "+path] = class
				}
			}
		}
	}
	found := map[string]string{}
	for _, o := range operations() {
		found[o.method+" "+o.path] = o.classes
	}
	assert.Equal(t, want, found)
}

// operators answer as the command has them answer, or panic.
func operators(g *guarded, isBroken *bool) api.ServerConfig {
	config := g.config
	hand := func(to http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if *isBroken {
				panic("out of order")
			}
			to.ServeHTTP(w, r)
		})
	}
	profiles := http.NewServeMux()
	profiles.HandleFunc("/debug/pprof/", pprof.Index)
	profiles.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	limits, err := rls.New(rls.Config{Service: config.Service, Gate: service.NewGate(service.GateConfig{})})
	if err != nil {
		panic(err)
	}
	config.Profiles, config.Metrics, config.RLS = hand(profiles), hand(promhttp.Handler()), hand(limits)
	config.Page = hand(page.NewHandler(page.ServerConfig{
		Service: config.Service, Top: func(*http.Request, top.Query) wire.Top { return wire.Top{} },
		Denials: func(time.Time) []top.Denials { return nil }, Clock: clock,
	}))
	return config
}

// brokenHeader is an answer that panics before it begins.
type brokenHeader struct {
	http.ResponseWriter
	panicked bool
}

func (b *brokenHeader) Header() http.Header {
	if !b.panicked {
		b.panicked = true
		panic("out of order")
	}
	return b.ResponseWriter.Header()
}

// Each operation has the answers that any of them may have: of the gate, of the bounds, and of what is wrong with the
// request. The other tests have those of its work.
func TestEveryDescribedAnswer(t *testing.T) {
	g, isBroken := newGuarded(t), false
	config := operators(g, &isBroken)
	draining := false
	config.Health.Drain = func() bool { return draining }
	gate := service.NewGate(service.GateConfig{Tokens: g.tokens.Load, MaxRequests: 1})
	busy, local, broken := config, config, config
	busy.Gate, local.LoopbackOnly = gate, true
	broken.Service = newService(service.Config{Rules: func() *events.Rules { panic("out of order") }})
	held, err := gate.Admit(service.ClassDecide, service.Token{Text: secret("decide"), Given: true})
	require.NoError(t, err)
	defer held.Release()

	// ask makes a request of an operation to that handler, on the address that has the operation, and returns the status.
	wrap := func(w http.ResponseWriter) http.ResponseWriter { return w }
	ask := func(config api.ServerConfig, method, path string, change func(*http.Request)) int {
		t.Helper()
		asked := asksOf(method, path)
		r := httptest.NewRequestWithContext(t.Context(), method, asked.target, strings.NewReader(asked.body))
		r.Host = "localhost"
		r.Header.Set("Content-Type", wire.TypeJSON)
		if isForm := strings.HasPrefix(path, "/ui/") && method == http.MethodPost; isForm {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		if asked.class != "anyone" {
			r.Header.Set("Counterd-Token", asked.secret())
		}
		change(r)
		h := newDescribed(config)
		if strings.HasPrefix(path, "/debug") {
			h = newDescribedAdmin(config)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(wrap(w), r)
		return w.Code
	}
	none := func(*http.Request) {}
	for _, o := range operations() {
		method, path, id := o.method, o.path, o.id
		answers := func(want string, of api.ServerConfig, change func(*http.Request)) {
			t.Helper()
			status := strconv.Itoa(ask(of, method, path, change)) // internal/conformance validates the answer
			if slices.Contains(o.statuses, want) {
				assert.Equal(t, want, status, "%s %s", id, want)
			}
		}
		if status := ask(config, method, path, none); status != http.StatusTooManyRequests {
			assert.Less(t, status, 400, id)
		}
		answers("400", config, func(r *http.Request) { spoil(r, path) })
		answers("401", config, func(r *http.Request) { r.Header.Del("Counterd-Token") })
		answers("403", config, func(r *http.Request) {
			r.Header.Set("Counterd-Token", secret("read"))
			if asksOf(method, path).class == "read" {
				r.Header.Set("Counterd-Token", secret("see"))
			}
		})
		answers("404", config, func(r *http.Request) { misname(r, path) })
		answers("413", config, func(r *http.Request) {
			r.ContentLength, r.Body = 1<<20+1, io.NopCloser(strings.NewReader(strings.Repeat("a=b&", 1<<18)))
		})
		answers("415", config, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") })
		answers("421", local, func(r *http.Request) { r.Host = "evil.example" })
		answers("431", config, func(r *http.Request) { r.Header["Many"] = slices.Repeat([]string{"x"}, 200) })
		isBroken = true
		if ask(broken, method, path, none) != http.StatusInternalServerError { // it does not ask the service
			wrap = func(w http.ResponseWriter) http.ResponseWriter { return &brokenHeader{ResponseWriter: w} }
			answers("500", broken, none)
			wrap = func(w http.ResponseWriter) http.ResponseWriter { return w }
		}
		isBroken = false
		draining = asksOf(method, path).class == "anyone"
		answers("503", busy, none)
		draining = false
	}

	// One override more than there may be.
	for i := range overrides.Max {
		one := events.Override{Event: "url_shorten", For: time.Hour}
		one.Kind, one.Value, one.Listing = "ip", fmt.Sprintf("192.0.2.%d", i), events.Allowed
		if _, err := config.Service.SetOverride(t.Context(), one); err != nil {
			require.ErrorIs(t, err, overrides.ErrTooMany)
			break
		}
	}
	assert.Equal(t, http.StatusConflict, ask(config, "POST", "/ui/override", func(r *http.Request) {
		r.Body = io.NopCloser(strings.NewReader(aForm + url.QueryEscape("event=url_shorten&feature=ip:203.0.113.77")))
	}))
}

const (
	aCounter = "event=url_shorten&feature=ip:203.0.113.9&counter=ip"
	aForm    = "kind=ip&verdict=allow&for=1h&of="
)

// What is denied, and what is settled too often or too late.
func TestDescribedAnswersOfTheWork(t *testing.T) {
	l := newLimits(t, "events: {closed: {limits: [{per: [], rate: 0/d}]}, e: {limits: [{per: ip, rate: 100/d}]}}")
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} {
		assert.Equal(t, 429, request(t, l, method, "/v1/authorize/closed", "").Code, method)
	}
	settle := func(status int, reservation, of string) {
		t.Helper()
		assert.Equal(t, status, request(t, l, "POST", "/v1/settle", `{"reservation": "`+reservation+`", `+of+`}`).Code)
	}
	reserve := func() string {
		w := request(t, l, "POST", "/v1/events/e/hit", `{"features": {"ip": "203.0.113.9"}, "cost": 5, "reserve": "30s"}`)
		return answer[wire.Decision](t, w).Reservation
	}
	settled, late := reserve(), reserve()
	settle(200, settled, `"cost": 3`)
	settle(200, settled, `"cost": 3`)
	settle(409, settled, `"cost": 2`)
	l.late = time.Hour
	settle(410, late, `"cost": 2`)

	g, isBroken := newGuarded(t), false
	g.config.Gate = nil
	config := operators(g, &isBroken)
	of := asksOf("POST", "/json")
	for status := 0; status != 429; status = request(t, newDescribed(config), "POST", "/json", of.body).Code {
		require.Contains(t, []int{0, 200}, status)
	}
}

// asksOf returns a request of an operation that its class may make.
func asksOf(method, path string) asks {
	switch {
	case path == "/ui" || path == "/ui/":
		return asks{"see", method, path, ""}
	case path == "/ui/{page}":
		return asks{"see", method, "/ui/rules", ""}
	case strings.HasPrefix(path, "/ui/"):
		return asks{classed[path].class, method, path, aForm + url.QueryEscape(aCounter)}
	case path == "/debug/pprof/":
		return asks{"operate", method, path, ""}
	case path == "/debug/pprof/{profile}":
		return asks{"operate", method, "/debug/pprof/heap", ""}
	case path == "/json":
		const address = `{"entries": [{"key": "ip", "value": "203.0.113.9"}]}`
		return asks{"decide", method, path, `{"domain": "url_shorten", "descriptors": [` + address + `]}`}
	case method == http.MethodDelete && path == "/v1/events/{event}/override":
		return asks{"override", method, "/v1/events/url_shorten/override?feature=ip:203.0.113.9", ""}
	case method == http.MethodDelete && path == "/v1/events/rls/{domain}/override":
		return asks{"override", method, "/v1/events/rls/shop/override?feature=Client:a", ""}
	}
	return classed[strings.Replace(path, "{domain}", "{domain:.+}", 1)]
}

// spoil gives a request a fault.
func spoil(r *http.Request, path string) {
	switch {
	case path == "/json":
		r.Body = io.NopCloser(strings.NewReader("{"))
	case path == "/ui/{page}":
		*r.URL = url.URL{Path: "/ui/feature", RawQuery: "event=url_shorten&feature=bob"}
	case strings.HasPrefix(path, "/ui/"):
		r.Body = io.NopCloser(strings.NewReader("of="))
	case path == "/debug/pprof/{profile}":
		r.URL.RawQuery = "seconds=x"
	default:
		r.URL.RawQuery += "&nothing=1"
	}
}

// misname has a request name what there is not. An override of an event without rules can be removed: there, the event's is no name.
func misname(r *http.Request, path string) {
	switch {
	case path == "/ui/" || path == "/v1/top":
		r.URL.RawQuery = "event=nothing"
	case path == "/ui/{page}" || path == "/debug/pprof/{profile}":
		r.URL.Path = strings.Replace(strings.Replace(r.URL.Path, "rules", "nothing", 1), "heap", "nothing", 1)
	case strings.HasPrefix(path, "/ui/"):
		r.Body = io.NopCloser(strings.NewReader(aForm + url.QueryEscape("event=nothing&feature=ip:203.0.113.9")))
	case r.Method == http.MethodDelete && strings.HasSuffix(path, "/override"):
		r.URL.Path = strings.Replace(r.URL.Path, "/events/", "/events/-", 1)
	default:
		r.URL.Path = regexp.MustCompile("^(/v1/[a-z]+/)[a-z_]+").ReplaceAllString(r.URL.Path, "${1}nothing")
	}
}

// The description is for anyone, by its tag a second time only if it has changed, and by the usual rules.
func TestOpenAPI(t *testing.T) {
	g := newGuarded(t)
	for _, h := range []http.Handler{g.client, g.admin} {
		ask := func(method, target, body string, values ...string) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(context.WithoutCancel(t.Context()), method, target, strings.NewReader(body))
			r.Header["If-None-Match"] = values
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		w := ask("GET", "/openapi.json", "")
		require.Equal(t, 200, w.Code)
		assert.Equal(t, api.OpenAPI(), w.Body.Bytes())
		assert.Equal(t, wire.TypeJSON, w.Header().Get("Content-Type"))
		tag := w.Header().Get("ETag")
		assert.Regexp(t, `^"[0-9a-f]{24}"$`, tag)
		assert.Equal(t, w.Header(), ask("HEAD", "/openapi.json", "").Header())
		for _, values := range [][]string{{tag}, {"W/" + tag}, {"*"}, {`"a", ` + tag}, {`"a"`, "\t" + tag + " "}} {
			w := ask("GET", "/openapi.json", "", values...)
			assert.Equal(t, 304, w.Code, values)
			assert.Zero(t, w.Body.Len())
			assert.Equal(t, tag, w.Header().Get("ETag"))
			assert.Empty(t, w.Header().Get("Content-Type"))
		}
		for _, values := range [][]string{{`"a"`}, {""}, {"W/"}, {tag[1:]}, {strings.ToUpper(tag)}, {"**"}} {
			assert.Equal(t, 200, ask("GET", "/openapi.json", "", values...).Code, values)
		}
		problem(t, ask("GET", "/openapi.json?a=b", "", tag), 400)
		problem(t, ask("GET", "/openapi.json?%zz", ""), 400)
		problem(t, ask("GET", "/openapi.json", "{}"), 400)
		problem(t, ask("POST", "/openapi.json", ""), 405)
		problem(t, ask("OPTIONS", "/openapi.json", ""), 405)
		problem(t, ask("GET", "/openapi.json/", ""), 404)
		problem(t, ask("GET", "/openapi.yaml", ""), 404)
	}
}
