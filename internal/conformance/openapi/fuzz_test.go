package openapi_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/connections"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/testkit/exchanges"
	"github.com/counterd/counterd/memcache"
)

// clock is nine seconds into a minute, for good.
func clock() time.Time { return time.Date(2026, 3, 14, 23, 30, 33, 0, time.UTC) }

// anyRules have an event for each way in which a request carries features.
const anyRules = `headers: [ratelimit, x-ratelimit]
trusted_proxies: [127.0.0.0/8, 192.0.2.0/24]
events:
  e:
    limits: [{per: ip, rate: [2/s, 5/m], allow: [10.0.0.0/8], deny: [203.0.113.7]}, {per: [ip, user], rate: 3/d, shadow: true}]
    from: {ip: forwarded, user: header X-User}
  token:  {limits: [{per: session, rate: 2/m, on_error: deny}], from: {session: bearer}}
  whole: {limits: [{per: [], rate: 3/m, count: all}]}
  plain: {}
`

// routes are what each fuzzer of whole requests begins with.
var routes = []struct{ method, target, header, body string }{
	{"POST", "/v1/events/e/hit", "Content-Type: application/json", `{"features": {"ip": "203.0.113.9", "user": "42"}, "cost": 2}`},
	{"POST", "/v1/events/e/increment", "Content-Type: application/json; charset=utf-8", `{"features": {"ip": "2001:db8::1"}, "by": 3, "at": "2026-03-14T23:00:00Z"}`},
	{"POST", "/v1/batch", "Content-Type: application/json", `{"hits": [{"event": "e", "features": {"ip": "203.0.113.9"}}, {"event": "x"}, {"event": "whole", "features": {}}]}`},
	{"GET", "/v1/events/e/count?feature=ip:203.0.113.9&window=1m&at=1773531033", "", ""},
	{"GET", "/v1/events/e/check?feature=ip:203.0.113.9&feature=user:42&cost=3", "", ""},
	{"GET", "/v1/events/e/history?feature=ip:203.0.113.9&level=second", "", ""},
	{"DELETE", "/v1/events/e/counters?feature=ip:203.0.113.9", "", ""},
	{"PUT", "/v1/authorize/e?deny_status=403", "X-User: 42\nX-Forwarded-For: 203.0.113.9, 192.0.2.1", "anything"},
	{"GET", "/v1/authorize/token", "Authorization: Bearer a.b", ""},
	{"POST", "/v1/authorize/whole?deny_status=401", "", ""},
	{"HEAD", "/v1/events", "", ""},
	{"GET", "/v1/events/plain", "", ""},
	{"OPTIONS", "/readyz?a=b", "", ""},
	{"GET", "/healthz", "Accept-Encoding: gzip", ""},
	{"GET", "/openapi.json", "If-None-Match: W/\"a\", *", ""},
	{"GET", "/v1/events/%2F/count", "", ""},
	{"TRACE", "//v1/../events/./e", "", ""},
}

func newAnyHandler(f *testing.F) http.Handler {
	rules, err := rulesfile.Parse([]byte(anyRules))
	require.NoError(f, err)
	store := memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock})
	counters := hierarchy.NewCounters(hierarchy.Config{Store: store, Clock: clock, Grace: 40 * time.Second})
	decider, err := limiter.New(limiter.Config{Timeout: 20 * time.Second}, counters)
	require.NoError(f, err)
	decides, err := service.New(service.Config{
		Rules:    func() *events.Rules { return rules },
		Counters: counting.New(counting.Config{}, counters),
		Limiter:  decider,
	})
	require.NoError(f, err)
	return api.NewServerHandler(api.ServerConfig{
		Service: decides, Log: slog.New(slog.DiscardHandler),
	})
}

// checkAnswer holds an answer to the contract. Where the client may have left, a 503 is
// one, too.
func checkAnswer(w *httptest.ResponseRecorder, left bool) error {
	mediaType := w.Header().Get("Content-Type")
	body := w.Body.Bytes()
	switch {
	case w.Code == http.StatusNoContent, w.Code == http.StatusNotModified:
		if len(body) > 0 {
			return fmt.Errorf("a %d with a body: %.200q", w.Code, body)
		}
		return nil
	case w.Code == http.StatusOK:
		if mediaType != wire.TypeJSON || !jsontext.Value(bytes.TrimSpace(body)).IsValid() {
			return fmt.Errorf("a 200 of type %q: %.200q", mediaType, body)
		}
		return nil
	case w.Code == http.StatusServiceUnavailable && left:
	case !slices.Contains([]int{400, 401, 403, 404, 405, 413, 415, 429}, w.Code):
		return fmt.Errorf("status %d: %.200q", w.Code, body)
	}
	var p struct {
		Type   string         `json:"type"`
		Title  string         `json:"title"`
		Status int            `json:"status"`
		Detail string         `json:"detail"`
		More   jsontext.Value `json:",unknown"`
	}
	if err := json.Unmarshal(body, &p); err != nil || mediaType != wire.TypeProblem {
		return fmt.Errorf("status %d of type %q is no problem document: %.200q: %w", w.Code, mediaType, body, err)
	}
	if p.Status != w.Code || p.Type == "" || p.Title == "" || p.Detail == "" {
		return fmt.Errorf("status %d: %.200q", w.Code, body)
	}
	if w.Code == http.StatusMethodNotAllowed && w.Header().Get("Allow") == "" {
		return fmt.Errorf("a 405 without Allow")
	}
	return nil
}

// Whatever a request that net/http lets through asks for, the answer is one of the
// contract.
func FuzzHandler(f *testing.F) {
	for _, route := range routes {
		f.Add(route.method, route.target, route.header, route.body)
	}
	for _, body := range []string{"", "{", `{"features": []}`, `{"features": {"ip": 1}}`, `{"features": {}, "x": 1}`, `{"cost": 1.5}`, "\xff"} {
		f.Add("POST", "/v1/events/e/hit", "Content-Type: application/json", body)
	}
	var fault error
	h := exchanges.Recorder{Handler: newAnyHandler(f), Record: func(e exchanges.Exchange) { fault = described().check(e) }}
	f.Fuzz(func(t *testing.T, method, target, header, body string) {
		at, err := url.ParseRequestURI(target)
		if err != nil {
			return
		}
		r := httptest.NewRequest("GET", "/", strings.NewReader(body))
		r.Method, r.URL, r.RequestURI = method, at, target
		r.RemoteAddr = "127.0.0.1:1"
		for line := range strings.Lines(header) {
			name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
			r.Header.Add(name, strings.TrimSpace(value))
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.NoError(t, checkAnswer(w, false))
		require.NoError(t, fault)
	})
}

// statusLine is one of net/http's answers, or of ours.
var statusLine = regexp.MustCompile(`^HTTP/1\.[01] \d{3} `)

// Whatever bytes a client sends to the real server, no answer is a 500, nothing panics,
// and what the handler answers is of the contract.
func FuzzServer(f *testing.F) {
	for _, route := range routes {
		header := strings.ReplaceAll(route.header, "\n", "\r\n")
		if header != "" {
			header += "\r\n"
		}
		f.Add(fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s", route.method, route.target, header, len(route.body), route.body))
		f.Add(fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: x\r\n%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\nGET / HTTP/1.0\r\n\r\n",
			route.method, route.target, header, len(route.body), route.body))
	}
	var mu sync.Mutex
	var faults []error
	fail := func(err error, method, target string) {
		if err == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		faults = append(faults, fmt.Errorf("%s %s: %w", method, target, err))
	}
	h := exchanges.Recorder{Handler: newAnyHandler(f), Record: func(e exchanges.Exchange) { fail(described().check(e), e.Method, e.Path) }}
	var log bytes.Buffer
	server := api.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := httptest.NewRecorder()
		h.ServeHTTP(out, r)
		fail(checkAnswer(out, true), r.Method, r.RequestURI)
		for name, values := range out.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(out.Code)
		_, _ = w.Write(out.Body.Bytes())
	}), slog.New(slog.NewTextHandler(&lockedWriter{mu: &mu, b: &log}, nil)))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(f, err)
	bounded := connections.NewListener(listener, 0)
	served := make(chan error, 1)
	go func() { served <- server.Serve(bounded) }()
	f.Cleanup(func() {
		server.Close()
		<-served
	})
	f.Fuzz(func(t *testing.T, text []byte) {
		conn, err := net.Dial("tcp", listener.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		_, _ = conn.Write(text) // the server may have had enough
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		// It ends with a reset where the server has not read all.
		answer, err := io.ReadAll(conn)
		if fault, ok := err.(net.Error); ok {
			require.False(t, fault.Timeout(), "the server has not closed the connection")
		}
		if len(answer) > 0 {
			require.Regexp(t, statusLine, string(answer[:min(len(answer), 40)]))
			require.NotContains(t, string(answer), " 500 Internal Server Error\r\n")
		}
		mu.Lock()
		defer mu.Unlock()
		require.Empty(t, faults)
		require.NotContains(t, log.String(), "panic")
		log.Reset()
	})
}

// lockedWriter is a log that is written by several.
type lockedWriter struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}
