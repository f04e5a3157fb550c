package api_test

import (
	"bufio"
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/mux"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/memcache"
)

// benchRules have an event far from its limits, and one that is always at them.
const benchRules = `events:
  far:  {limits: [{per: ip, rate: [100000000000/s, 100000000001/m, 100000000002/h, 100000000003/d]}]}
  full: {limits: [{per: ip, rate: [100000000000/s, 100000000001/m, 100000000002/h, 1/d]}]}
`

// benched is a handler on a limiter in the memory of this process, whose clock
// does not move: a denial stays cached.
type benched struct {
	http.Handler
	limiter *limiter.Limiter
	rules   *events.Rules
}

func newBenched(tb testing.TB) benched {
	tb.Helper()
	rules, err := rulesfile.Parse([]byte(benchRules))
	require.NoError(tb, err)
	store := memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock})
	decider, err := limiter.New(limiter.Config{}, hierarchy.NewCounters(hierarchy.Config{Store: store, Clock: clock}))
	require.NoError(tb, err)
	handler := api.NewServerHandler(api.ServerConfig{
		Service: newService(service.Config{
			Rules:    func() *events.Rules { return rules },
			Counters: counting.New(counting.Config{}, hierarchy.NewCounters(hierarchy.Config{Store: store, Clock: clock})),
			Limiter:  decider,
		}),
	})
	return benched{handler, decider, rules}
}

// A naive answer to a hit, as doNothing writes it.
type naiveAnswer struct {
	Allowed    bool         `json:"allowed"`
	Event      string       `json:"event"`
	At         string       `json:"at"`
	RetryAfter int64        `json:"retry_after"`
	Limits     []naiveLimit `json:"limits"`
}

type naiveLimit struct {
	Name      string `json:"name"`
	Feature   string `json:"feature"`
	Limit     int64  `json:"limit"`
	Window    string `json:"window"`
	Count     int64  `json:"count"`
	Remaining int64  `json:"remaining"`
	Reset     int64  `json:"reset"`
	Allowed   bool   `json:"allowed"`
}

// doNothing is what a hit is measured against: a handler of the same shape that
// decides nothing. It reads the same body and writes the same headers and an
// answer with four limits, on the same router, with nothing but encoding/json.
func doNothing() http.Handler {
	router := mux.NewRouter()
	router.HandleFunc("/v1/events/{event}/hit", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Features map[string]string `json:"features"`
			Cost     int64             `json:"cost"`
		}
		if err := stdjson.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		out := naiveAnswer{Allowed: true, Event: mux.Vars(r)["event"], At: "2026-03-14T23:30:33Z"}
		for _, window := range []string{"1s", "1m", "1h", "24h"} {
			out.Limits = append(out.Limits, naiveLimit{
				Name: "ip-100-per-" + window, Feature: "ip:" + in.Features["ip"], Limit: 100, Window: window, Count: 42, Remaining: 58, Allowed: true,
			})
		}
		header := w.Header()
		header.Set("Content-Type", "application/json")
		header.Set("RateLimit-Policy", `"ip-100-per-1s";q=100;w=1, "ip-100-per-1m";q=100;w=60, "ip-100-per-1h";q=100;w=3600, "ip-100-per-24h";q=100;w=86400`)
		header.Set("RateLimit", `"ip-100-per-1s";r=58, "ip-100-per-1m";r=58, "ip-100-per-1h";r=58, "ip-100-per-24h";r=58`)
		_ = stdjson.NewEncoder(w).Encode(out)
	}).Methods(http.MethodPost)
	return router
}

// exchange is one request that is made again and again, and the answer to it.
type exchange struct {
	handler http.Handler
	request *http.Request
	body    strings.Reader
	text    string
	header  http.Header
	status  int
	written int
}

func newExchange(handler http.Handler, method, target, body string) *exchange {
	e := &exchange{handler: handler, text: body, header: http.Header{}}
	e.request = httptest.NewRequest(method, target, strings.NewReader(body))
	if body != "" {
		e.request.Header.Set("Content-Type", "application/json")
	}
	return e
}

func (e *exchange) Header() http.Header    { return e.header }
func (e *exchange) WriteHeader(status int) { e.status = status }
func (e *exchange) Write(p []byte) (int, error) {
	e.written += len(p)
	return len(p), nil
}

func (e *exchange) do() {
	clear(e.header)
	e.body.Reset(e.text)
	e.request.Body = io.NopCloser(&e.body)
	e.handler.ServeHTTP(e, e.request)
}

// inTurns measures do, and beside it in turns the others, of which it reports how
// long one takes and, as a ratio, how many times as many of do are done in a time.
func inTurns(b *testing.B, do func(), others map[string]func()) {
	const turn = 500
	took := map[string]time.Duration{}
	b.ReportAllocs()
	var own time.Duration
	b.ResetTimer()
	for done := 0; done < b.N; done += turn {
		n := min(turn, b.N-done)
		began := time.Now()
		for range n {
			do()
		}
		own += time.Since(began)
		b.StopTimer()
		for name, other := range others {
			began := time.Now()
			for range n {
				other()
			}
			took[name] += time.Since(began)
		}
		b.StartTimer()
	}
	for name, d := range took {
		b.ReportMetric(float64(d)/float64(b.N), name+"-ns/op")
		b.ReportMetric(float64(d)/float64(own), name+"/ours")
	}
}

func batchBody(event string, hits int) string {
	var b strings.Builder
	for i := range hits {
		fmt.Fprintf(&b, `,{"event":"%s","features":{"ip":"203.0.113.%d"}}`, event, i)
	}
	return `{"hits":[` + b.String()[1:] + `]}`
}

// BenchmarkHandler is what a request costs without net/http, beside the handler
// that does nothing and beside what the limiter alone takes of it.
func BenchmarkHandler(b *testing.B) {
	h := newBenched(b)
	naive := newExchange(doNothing(), "POST", "/v1/events/far/hit", who)
	alone := func(event string, n int) func() {
		hits := make([]limiter.Hit, n)
		for i := range hits {
			ip := fmt.Sprintf("203.0.113.%d", i)
			hits[i] = limiter.Hit{Event: h.rules.Events[event], Features: events.Features{"ip": ip}, Cost: 1}
		}
		return func() {
			if _, err := h.limiter.Hits(b.Context(), hits); err != nil {
				b.Error(err)
			}
		}
	}
	check := limiter.Hit{Event: h.rules.Events["far"], Features: events.Features{"ip": "203.0.113.9"}, Cost: 1}
	for _, test := range []struct {
		name    string
		ours    *exchange
		status  int
		limiter func()
	}{
		{"hit", newExchange(h, "POST", "/v1/events/far/hit", who), 200, alone("far", 1)},
		{"denied", newExchange(h, "POST", "/v1/events/full/hit", who), 429, alone("full", 1)},
		{"check", newExchange(h, "GET", "/v1/events/far/check?feature=ip:203.0.113.9", ""), 200, func() {
			if _, err := h.limiter.Check(b.Context(), check); err != nil {
				b.Error(err)
			}
		}},
		{"batch of 100", newExchange(h, "POST", "/v1/batch", batchBody("far", 100)), 200, alone("far", 100)},
	} {
		b.Run(test.name, func(b *testing.B) {
			for range 2 { // the first fills what is denied from then on
				test.ours.do()
				test.limiter()
			}
			require.Equal(b, test.status, test.ours.status)
			inTurns(b, test.ours.do, map[string]func(){"naive": naive.do, "limiter": test.limiter})
		})
	}
}

// BenchmarkServer has 64 connections to a server of net/http on this machine, each
// with one request under way; the callers, which do next to nothing, share its cores.
func BenchmarkServer(b *testing.B) {
	h := newBenched(b)
	const connections = 64
	for _, test := range []struct{ name, target, body string }{
		{"hit", "/v1/events/far/hit", who},
		{"denied", "/v1/events/full/hit", who},
		{"batch of 100", "/v1/batch", batchBody("far", 100)},
	} {
		b.Run(test.name, func(b *testing.B) {
			ours := openCallers(b, api.NewServer(h, slog.Default()), connections, test.target, test.body)
			naive := openCallers(b, &http.Server{Handler: doNothing(), ReadHeaderTimeout: 5 * time.Second}, connections, "/v1/events/far/hit", who)
			ours.call(b, connections)
			naive.call(b, connections)
			const turn = 4000
			var own, others time.Duration
			b.ReportAllocs()
			b.ResetTimer()
			for done := 0; done < b.N; done += turn {
				n := min(turn, b.N-done)
				own += ours.call(b, n)
				b.StopTimer()
				others += naive.call(b, n)
				b.StartTimer()
			}
			b.ReportMetric(float64(others)/float64(b.N), "naive-ns/op")
			b.ReportMetric(float64(others)/float64(own), "naive/ours")
		})
	}
}

// callers are connections to a server, on each of which the same is asked.
type callers struct {
	conns   []net.Conn
	readers []*bufio.Reader
	request []byte
}

func openCallers(b *testing.B, config *http.Server, n int, target, body string) *callers {
	b.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.Config = config
	server.Start()
	b.Cleanup(server.Close)
	c := &callers{request: fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", target, len(body), body)}
	for range n {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(b, err)
		b.Cleanup(func() { conn.Close() })
		c.conns = append(c.conns, conn)
		c.readers = append(c.readers, bufio.NewReaderSize(conn, 64<<10))
	}
	return c
}

// call makes n calls and returns how long they took together.
func (c *callers) call(b *testing.B, n int) time.Duration {
	var left atomic.Int64
	left.Store(int64(n))
	began := time.Now()
	var all sync.WaitGroup
	for i, conn := range c.conns {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := conn.Write(c.request); err != nil {
					b.Error(err)
					return
				}
				if err := skipResponse(c.readers[i]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return time.Since(began)
}

// skipResponse reads over a response as cheaply as can be, so that the callers take
// little of what is measured.
func skipResponse(r *bufio.Reader) error {
	length := 0
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if value, found := bytes.CutPrefix(line, []byte("Content-Length: ")); found {
			for _, digit := range bytes.TrimSpace(value) {
				length = length*10 + int(digit-'0')
			}
		}
		if len(line) == len("\r\n") {
			break
		}
	}
	if length > 0 {
		_, err := r.Discard(length)
		return err
	}
	for { // in chunks
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		var size int
		if _, err := fmt.Sscanf(string(line), "%x", &size); err != nil {
			return err
		}
		if _, err := r.Discard(size + len("\r\n")); err != nil || size == 0 {
			return err
		}
	}
}
