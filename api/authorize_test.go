package api_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/memcache"
)

// newAuthorizer returns a handler with those rules, and its log.
func newAuthorizer(t *testing.T, yaml string, store store.Store) (http.Handler, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	rules := parseRules(t, yaml)
	return newDescribed(api.ServerConfig{
		Service: newService(service.Config{
			Rules:    func() *events.Rules { return rules },
			Counters: counting.New(counting.Config{}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: store, Clock: clock})),
			Limiter:  newTestLimiter(t, store),
		}),
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	}), &log
}

// A route that takes no body answers at once, whatever the headers say of a body: a proxy may repeat those of its client,
// and not send the body. Then the server closes the connection: a process that ends does not wait for the body either.
func TestABodyThatDoesNotComeIsNotAwaited(t *testing.T) {
	for request, want := range map[string]int{
		"GET /v1/authorize/e HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n":           204,
		"POST /v1/authorize/e HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n":     204,
		"POST /v1/authorize/e HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n": 204,
		"POST /v1/authorize/f HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n":          404,
		"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n":                  400,
		"GET /v1/events/e HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n":              400,
		"DELETE /v1/events/e/counters HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n":  400,
	} {
		bubble.Test(t, func(t *testing.T) {
			h, _ := newAuthorizer(t, "events: {e: {limits: [{per: ip, rate: 8/m}]}}", newStore())
			c := newPipedClients(t, h, nil)
			conn, began := c.dial(), time.Now()
			_, err := io.WriteString(conn, request)
			require.NoError(t, err)
			response, err := http.ReadResponse(conn.reader, nil)
			require.NoError(t, err, request)
			assert.Equal(t, want, response.StatusCode, request)
			assert.True(t, response.Close, request)
			_, err = io.Copy(io.Discard, response.Body)
			require.NoError(t, err)
			assert.Zero(t, time.Since(began), request)
			require.NoError(t, c.server.Shutdown(t.Context()))
			assert.LessOrEqual(t, time.Since(began), 2*time.Second, request)
			_, err = conn.reader.ReadByte()
			assert.ErrorIs(t, err, io.EOF, request)
		})
	}
}

// A body that is sent after all is read before the connection ends. Otherwise the system would reset the connection, and
// the client might lose the answer.
func TestABodyThatIsLeftAndComesLate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h, _ := newAuthorizer(t, "events: {e: {limits: [{per: ip, rate: 8/m}]}}", newStore())
		conn := newPipedClients(t, h, nil).dial()
		_, err := io.WriteString(conn, "POST /v1/authorize/e HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")
		require.NoError(t, err)
		time.Sleep(100 * time.Millisecond)
		response, err := http.ReadResponse(conn.reader, nil)
		require.NoError(t, err)
		assert.Equal(t, 204, response.StatusCode)
		_, err = io.WriteString(conn, "12345")
		require.NoError(t, err, "it is read")
		_, err = conn.reader.ReadByte()
		assert.ErrorIs(t, err, io.EOF)
	})
}

func newStore() *memcache.Embedded {
	return memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock})
}

// ask makes a proxy's request, with headers given as name and value.
func ask(h http.Handler, method, target, peer string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr = peer
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestAuthorize(t *testing.T) {
	h, log := newAuthorizer(t, "events: {e: {limits: [{per: ip, rate: 8/m}]}}", newStore())
	for i, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"} {
		w := ask(h, method, "/v1/authorize/e", "203.0.113.9:1")
		assert.Equal(t, 204, w.Code, method)
		assert.Empty(t, w.Body.String())
		assert.Empty(t, w.Header().Get("Content-Type"))
		assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		assert.Equal(t, `"ip-8-per-1m";q=8;w=60`, w.Header().Get("RateLimit-Policy"))
		assert.Contains(t, w.Header().Get("RateLimit"), `"ip-8-per-1m";r=`+string('7'-rune(i)))
		assert.Empty(t, w.Header().Get("Retry-After"))
	}
	for _, test := range []struct {
		target string
		status int
	}{
		{"/v1/authorize/e", 429}, {"/v1/authorize/e?deny_status=429", 429}, {"/v1/authorize/e?deny_status=403", 403}, {"/v1/authorize/e?deny_status=401", 401},
	} {
		w := ask(h, "GET", test.target, "203.0.113.9:1")
		d := denialOf(t, w, test.status)
		assert.Equal(t, []string{"ip-8-per-1m"}, d.ViolatedPolicies)
		assert.Equal(t, int64(60), *d.RetryAfter)
		assert.Equal(t, "60", w.Header().Get("Retry-After"))
		assert.Equal(t, `"ip-8-per-1m";r=0;t=60`, w.Header().Get("RateLimit"))
		assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	}
	assert.Equal(t, 204, ask(h, "GET", "/v1/authorize/e?deny_status=403", "203.0.113.8:1").Code)
	assert.Empty(t, log.String())
}

// A body is not looked at, whatever it is and says it is.
func TestAuthorizeLeavesBodiesAlone(t *testing.T) {
	h, _ := newAuthorizer(t, "events: {e: {limits: [{per: ip, rate: 8/m}]}}", newStore())
	for _, contentType := range []string{"application/json", "text/plain", ""} {
		r := httptest.NewRequest("POST", "/v1/authorize/e", strings.NewReader(strings.Repeat("{", 2<<20)))
		r.Header.Set("Content-Type", contentType)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, 204, w.Code, contentType)
	}
}

func TestAuthorizeFaultyRequests(t *testing.T) {
	const secret = "s3cr3t"
	h, log := newAuthorizer(t, `
events:
  e: {limits: [{per: ip, rate: 2/m}]}
  user: {limits: [{per: user, rate: 2/m}]}
  plain: {}
`, newStore())
	for name, test := range map[string]struct {
		target    string
		header    []string
		status    int
		parameter string
		detail    string
	}{
		"a status that is no denial": {"e?deny_status=200", nil, 400, "deny_status", "deny_status: it is 401, 403 or 429"},
		"a status, otherwise":        {"e?deny_status=0403", nil, 400, "deny_status", "deny_status: it is 401, 403 or 429"},
		"a status twice":             {"e?deny_status=403&deny_status=403", nil, 400, "deny_status", "deny_status: the parameter is given twice"},
		"unknown parameter":          {"e?feature=ip:" + secret, nil, 400, "", `a parameter is unknown: this route takes ["deny_status"]`},
		"cost":                       {"e?cost=1", nil, 400, "", `a parameter is unknown: this route takes ["deny_status"]`},
		"unknown event":              {"f", nil, 404, "", "No event of this name is known; GET /v1/events lists those that are."},
		"no limits":                  {"plain", nil, 400, "", "plain has no limits: it is counted, not decided"},
		"no token":                   {"user", nil, 400, "", "no limit of user is per the features given: wanted are user"},
		"two tokens":                 {"user", []string{"Authorization", "Bearer " + secret, "Authorization", "Bearer b"}, 400, "", `feature of kind "user": the header Authorization is given more than once`},
	} {
		t.Run(name, func(t *testing.T) {
			for _, method := range []string{"GET", "POST"} {
				w := ask(h, method, "/v1/authorize/"+test.target, "203.0.113.9:1", test.header...)
				p := problem(t, w, test.status)
				assert.Equal(t, test.detail, p.Detail)
				assert.NotContains(t, w.Body.String()+log.String(), secret)
				if test.status == 400 {
					require.Len(t, p.Errors, 1)
					assert.Equal(t, test.parameter, p.Errors[0].Parameter)
					assert.Empty(t, p.Errors[0].Pointer)
				}
			}
		})
	}
	assert.Equal(t, `"ip-2-per-1m";r=1`, ask(h, "GET", "/v1/authorize/e", "203.0.113.9:1").Header().Get("RateLimit"), "none was counted")
	assert.Equal(t, 404, ask(h, "GET", "/v1/authorize/e/", "203.0.113.9:1").Code)
	assert.Equal(t, 404, ask(h, "GET", "/v1/authorize/", "203.0.113.9:1").Code)
}

// A forwarded address is the trusted proxies' word alone: it is neither a way
// past one's limit nor one to use up another's.
func TestAuthorizeSpoofedAddresses(t *testing.T) {
	const rules = "{events: {e: {limits: [{per: ip, rate: 2/m}], from: {ip: forwarded}}}, trusted_proxies: [10.0.0.0/8, 'fd00::/8']}"
	h, _ := newAuthorizer(t, rules, newStore())
	hit := func(peer string, forwarded ...string) *httptest.ResponseRecorder {
		var header []string
		for _, line := range forwarded {
			header = append(header, "X-Forwarded-For", line)
		}
		return ask(h, "GET", "/v1/authorize/e?deny_status=403", peer, header...)
	}
	for _, way := range [][]string{
		{"10.0.0.1:1", "203.0.113.9"}, {"10.0.0.1:1", "198.51.100.1, 203.0.113.9"},
	} {
		assert.Equal(t, 204, hit(way[0], way[1:]...).Code)
	}
	for i, way := range [][]string{
		{"10.0.0.1:1", "203.0.113.9"},
		{"10.0.0.1:1", "198.51.100.2, 203.0.113.9"},
		{"10.0.0.2:1", "198.51.100.3, 10.0.0.9, 203.0.113.9, 10.0.0.1"},
		{"10.0.0.2:1", "198.51.100.4", "203.0.113.9"},
		{"[fd00::1]:1", "unknown, 203.0.113.9:80"},
		{"[::ffff:10.0.0.1]:1", "::ffff:203.0.113.9"},
		{"203.0.113.9:1", "198.51.100.5"},
		{"203.0.113.9:1", "198.51.100.5, 10.0.0.1"},
		{"[::ffff:203.0.113.9]:1", "198.51.100.6"},
		{"203.0.113.9:1"},
	} {
		d := denialOf(t, hit(way[0], way[1:]...), 403)
		assert.Equal(t, "ip:203.0.113.9", d.Limits[0].Feature, "%d", i)
	}
	// None of those whose names were used has been counted.
	for _, client := range []string{"198.51.100.1", "198.51.100.2", "198.51.100.5"} {
		assert.Equal(t, `"ip-2-per-1m";r=1`, hit("10.0.0.1:1", client).Header().Get("RateLimit"), client)
	}
	// An IPv6 client is counted by its network, whichever address of it it takes.
	assert.Equal(t, 204, hit("10.0.0.1:1", "2001:db8::1").Code)
	assert.Equal(t, 204, hit("10.0.0.1:1", "[2001:db8::2]:80").Code)
	assert.Equal(t, 403, hit("10.0.0.1:1", "2001:db8:0:0:ffff::3%eth0").Code)
}

// Of an event with methods only requests of these are hits. Where a proxy does not say
// which its client's has, it is one.
func TestAuthorizeMethods(t *testing.T) {
	const forwarded, original = "X-Forwarded-Method", "X-Original-Method"
	for name, test := range map[string]struct {
		methods string
		asked   string
		header  []string
		counted bool
	}{
		"Traefik and Caddy, a write":            {"[POST, PUT]", "GET", []string{forwarded, "PUT"}, true},
		"Traefik and Caddy, a read":             {"[POST, PUT]", "GET", []string{forwarded, "GET"}, false},
		"nginx, a write":                        {"[POST, PUT]", "GET", []string{original, "POST"}, true},
		"nginx, a read":                         {"[POST, PUT]", "GET", []string{original, "HEAD"}, false},
		"asked by the method, another":          {"[POST, PUT]", "DELETE", nil, false},
		"reads alone, a read":                   {"GET", "GET", []string{forwarded, "GET"}, true},
		"reads alone, a write":                  {"GET", "GET", []string{forwarded, "POST"}, false},
		"the proxy does not say":                {"[POST, PUT]", "GET", nil, true},
		"it asks by HEAD, and says it":          {"[POST, PUT]", "HEAD", []string{original, "GET"}, false},
		"what is no method":                     {"[POST, PUT]", "GET", []string{forwarded, "GET, GET"}, true},
		"the client adds the other header":      {"[POST, PUT]", "GET", []string{forwarded, "GET", original, "POST"}, true},
		"the client adds it, the other way":     {"[POST, PUT]", "GET", []string{forwarded, "POST", original, "GET"}, true},
		"the client adds one, another method":   {"[POST, PUT]", "DELETE", []string{original, "GET"}, false},
		"a method that a lenient service takes": {"[POST, PUT]", "GET", []string{original, "post"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := newAuthorizer(t, "events: {e: {methods: "+test.methods+", limits: [{per: ip, rate: 1/m, deny: 203.0.113.7}]}}", newStore())
			for i := range 3 {
				w := ask(h, test.asked, "/v1/authorize/e", "203.0.113.9:1", test.header...)
				if test.counted && i > 0 {
					denialOf(t, w, 429)
					continue
				}
				assert.Equal(t, 204, w.Code)
				assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
				assert.Equal(t, test.counted, w.Header().Get("RateLimit") != "")
				assert.Equal(t, test.counted, w.Header().Get("RateLimit-Policy") != "")
			}
			listed := ask(h, test.asked, "/v1/authorize/e", "203.0.113.7:1", test.header...)
			assert.Equal(t, test.counted, listed.Code == 429, "lists are of hits, too")
		})
	}
	h, _ := newAuthorizer(t, "events: {e: {methods: POST, limits: [{per: ip, rate: 1/m}]}}", newStore())
	assert.Equal(t, 400, ask(h, "DELETE", "/v1/authorize/e?deny_status=200", "203.0.113.9:1").Code)
	assert.Equal(t, 404, ask(h, "DELETE", "/v1/authorize/f", "203.0.113.9:1").Code)
	rules := ask(h, "GET", "/v1/events/e", "203.0.113.9:1")
	assert.Equal(t, []string{"POST"}, answer[wire.Event](t, rules).Methods)
}

// A header that is larger than the server takes is refused before anything is
// counted; one that fits is read to where belief ends.
func TestAuthorizeHugeHeaders(t *testing.T) {
	const rules = "{events: {e: {limits: [{per: ip, rate: 2/m}], from: {ip: forwarded}}}, trusted_proxies: 127.0.0.0/8}"
	h, _ := newAuthorizer(t, rules, newStore())
	server := httptest.NewUnstartedServer(nil)
	server.Config = api.NewServer(h, slog.New(slog.DiscardHandler))
	server.Start()
	defer server.Close()
	hit := func(forwarded string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), "GET", server.URL+"/v1/authorize/e", nil)
		require.NoError(t, err)
		r.Header.Set("X-Forwarded-For", forwarded)
		response, err := server.Client().Do(r)
		require.NoError(t, err)
		response.Body.Close()
		return response
	}
	assert.Equal(t, 204, hit(strings.Repeat("127.0.0.1,", 6000)+"203.0.113.9").StatusCode)
	assert.Equal(t, 431, hit(strings.Repeat("127.0.0.1,", 12000)+"203.0.113.9").StatusCode)
	assert.Equal(t, `"ip-2-per-1m";r=0`, hit("203.0.113.9").Header.Get("RateLimit"))
	assert.Equal(t, 429, hit("203.0.113.9").StatusCode)
}

func TestAuthorizeWithoutAStore(t *testing.T) {
	h, log := newAuthorizer(t, `
events:
  allow: {limits: [{per: ip, rate: 1/m}]}
  deny: {limits: [{per: ip, rate: 1/m, on_error: deny}]}
`, failingStore{})
	for range 3 {
		assert.Equal(t, 204, ask(h, "GET", "/v1/authorize/allow", "203.0.113.9:1").Code)
		w := ask(h, "GET", "/v1/authorize/deny?deny_status=403", "203.0.113.9:1")
		assert.Equal(t, 503, w.Code, "it is not denied by a limit")
		assert.Empty(t, w.Header().Get("Retry-After"))
	}
	assert.NotContains(t, log.String(), "203.0.113.9")
}

// A request that waits for its turn in a queue learns for how long: the proxy passes it on. A lease that no
// service can release is not taken.
func TestAuthorizeBesideQueuesAndLeases(t *testing.T) {
	rules := parseRules(t, "events: {web: {limits: [{per: ip, rate: 4/s, queue: 2}]}, export: {methods: [POST], limits: [{per: ip, concurrent: 9, lease: 5m}]}}")
	var log bytes.Buffer
	h := newDescribed(api.ServerConfig{
		Service: newServiceOf(t, newStore(), clock, func() *events.Rules { return rules }), Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	for _, want := range []string{"", "0.25", "0.5"} {
		w := ask(h, "GET", "/v1/authorize/web", "203.0.113.9:1")
		require.Equal(t, 204, w.Code)
		assert.Equal(t, want, w.Header().Get("Counterd-Wait"))
	}
	w := ask(h, "GET", "/v1/authorize/web", "203.0.113.9:1")
	assert.Equal(t, 429, w.Code)
	assert.Empty(t, w.Header().Get("Counterd-Wait"))

	assert.Equal(t, 204, ask(h, "GET", "/v1/authorize/export", "203.0.113.9:1", "X-Forwarded-Method", "GET").Code, "it is not counted")
	assert.Empty(t, log.String())
	for range 3 {
		p := problem(t, ask(h, "GET", "/v1/authorize/export", "203.0.113.9:1", "X-Forwarded-Method", "POST"), 400)
		assert.Contains(t, p.Detail, "a proxy cannot release leases")
	}
	assert.Equal(t, 1, strings.Count(log.String(), "level=WARN"))
	assert.Contains(t, log.String(), "event=export")
}
