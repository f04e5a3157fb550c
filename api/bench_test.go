package api_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

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

// newBenched returns a handler on a limiter in the memory of this process, whose clock does not move: a denial stays
// cached.
func newBenched(tb testing.TB) http.Handler {
	tb.Helper()
	rules, err := rulesfile.Parse([]byte(benchRules))
	require.NoError(tb, err)
	store := memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock})
	decider, err := limiter.New(limiter.Config{}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: store, Clock: clock}))
	require.NoError(tb, err)
	return api.NewServerHandler(api.ServerConfig{
		Service: newService(service.Config{
			Rules:    func() *events.Rules { return rules },
			Counters: counting.New(counting.Config{}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: store, Clock: clock})),
			Limiter:  decider,
		}),
	})
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

func batchBody(event string, hits int) string {
	var b strings.Builder
	for i := range hits {
		fmt.Fprintf(&b, `,{"event":"%s","features":{"ip":"203.0.113.%d"}}`, event, i)
	}
	return `{"hits":[` + b.String()[1:] + `]}`
}

// BenchmarkHandler measures requests without net/http. The cost of the limiter alone is in its own package.
func BenchmarkHandler(b *testing.B) {
	h := newBenched(b)
	for name, test := range map[string]struct {
		exchange *exchange
		status   int
	}{
		"hit":          {newExchange(h, "POST", "/v1/events/far/hit", who), 200},
		"denied":       {newExchange(h, "POST", "/v1/events/full/hit", who), 429},
		"check":        {newExchange(h, "GET", "/v1/events/far/check?feature=ip:203.0.113.9", ""), 200},
		"batch of 100": {newExchange(h, "POST", "/v1/batch", batchBody("far", 100)), 200},
	} {
		b.Run(name, func(b *testing.B) {
			for range 2 { // the first fills what is denied from then on
				test.exchange.do()
			}
			require.Equal(b, test.status, test.exchange.status)
			b.ReportAllocs()
			for b.Loop() {
				test.exchange.do()
			}
		})
	}
}
