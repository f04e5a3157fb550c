package docs_test

import (
	"context"
	"github.com/counterd/counterd/internal/testkit"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/assembly"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/rls"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/telemetry/tracing"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
	"github.com/counterd/counterd/memcache"
)

// described matches an attribute in the table of docs/tracing.md: its span, its name and its type.
var described = regexp.MustCompile(
	"(?m)^\\| (request|call|decide|batch|trip) \\| `([^`]+)` \\| (string|int|string\\[\\]) \\|")

var typeNames = map[attribute.Type]string{
	attribute.STRING: "string", attribute.INT64: "int", attribute.STRINGSLICE: "string[]",
}

// attributesSeen are the attributes of the spans that are recorded, as the table has them.
func attributesSeen(spans *tracetest.SpanRecorder) map[string]bool {
	seen := map[string]bool{}
	for _, span := range spans.Ended() {
		of := "request"
		switch name := span.Name(); {
		case strings.HasPrefix(name, "memcached "):
			of = "trip"
		case strings.HasSuffix(name, "/ShouldRateLimit"):
			of = "call"
		case name == "decide":
			of = "decide"
			for _, a := range span.Attributes() {
				if a.Key == "counterd.hits" {
					of = "batch"
				}
			}
		}
		for _, a := range span.Attributes() {
			seen[strings.Join([]string{of, string(a.Key), typeNames[a.Value.Type()]}, " ")] = true
		}
	}
	return seen
}

const tracedRules = `events:
  e: {limits: [{per: ip, rate: 2/h, on_error: deny}, {per: ip, name: maybe, rate: 1/h, shadow: true}]}
  far: {limits: [{per: ip, rate: 1000000/h}]}
`

// callRLS makes a call of Envoy's rate limit service.
func callRLS(t *testing.T, tracer trace.Tracer) {
	t.Helper()
	rules, err := rulesfile.Parse([]byte(tracedRules))
	require.NoError(t, err)
	store := memcache.NewEmbedded(memcache.EmbeddedConfig{})
	counters := hierarchy.NewCounters(hierarchy.Config{Store: store})
	decider, err := limiter.New(limiter.Config{}, counters)
	require.NoError(t, err)
	s, err := service.New(service.Config{
		Rules:     func() *events.Rules { return rules },
		Counters:  counting.New(counting.Config{}, counters),
		Limiter:   decider,
		StartSpan: tracing.Start(tracer),
	})
	require.NoError(t, err)
	server, err := rls.New(rls.Config{Service: s, Gate: service.NewGate(service.GateConfig{}), Tracer: tracer})
	require.NoError(t, err)
	visitor := &ratelimitv3.RateLimitDescriptor_Entry{Key: "ip", Value: "203.0.113.9"}
	_, err = server.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{
		Domain:      "e",
		Descriptors: []*ratelimitv3.RateLimitDescriptor{{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{visitor}}},
	})
	require.NoError(t, err)
}

// docs/tracing.md has each attribute of each span, with its type, and no other.
func TestTheAttributesOfSpans(t *testing.T) {
	rules, err := counterd.ParseRules([]byte(tracedRules))
	require.NoError(t, err)
	spans, server := tracetest.NewSpanRecorder(), memcachedtest.Start(t)
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
	l, err := counterd.New(rules, counterd.WithMemcached(server.Addr),
		func(c *assembly.Config) {
			c.StartSpan, c.OnCoalesced = tracing.Start(tracer), tracing.Together
			c.Hooks = []assembly.Hooks{{OnRoundTrip: tracing.Trips(tracer)}}
		},
		counterd.WithTimeout(time.Second), counterd.WithLog(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	handler := api.NewServerHandler(api.ServerConfig{
		Service: l.Parts().Service, StartSpan: tracing.StartRequest(tracer), Log: slog.New(slog.DiscardHandler),
	})
	ask := func(method, target, body string) {
		r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	const hit = `{"features": {"ip": "203.0.113.9"}}`
	for range 3 {
		ask(http.MethodPost, "/v1/events/e/hit", hit)
	}
	callRLS(t, tracer)
	batch := func() {
		ask(http.MethodPost, "/v1/batch", `{"hits": [{"event": "e", "features": {"ip": "203.0.113.9"}},
			{"event": "far", "features": {"ip": "203.0.113.8"}}, {"event": "none", "features": {}}]}`)
	}
	batch()
	combined := func() bool {
		var callers sync.WaitGroup
		for range 32 {
			callers.Go(func() { _, _ = l.Hit(context.Background(), "far", counterd.Features{"ip": "203.0.113.9"}) })
		}
		callers.Wait()
		return attributesSeen(spans)["decide counterd.combined int"]
	}
	testkit.Await(t, time.Minute, "hits that are combined", combined)
	server.Stop()
	for range 4 {
		ask(http.MethodPost, "/v1/events/e/hit", `{"features": {"ip": "203.0.113.7"}}`)
		ask(http.MethodPost, "/v1/batch", `{"hits": [{"event": "e", "features": {"ip": "203.0.113.7"}}]}`)
	}
	page, err := os.ReadFile("tracing.md")
	require.NoError(t, err)
	want := map[string]bool{}
	for _, row := range described.FindAllStringSubmatch(string(page), -1) {
		want[strings.Join(row[1:], " ")] = true
	}
	assert.Equal(t, want, attributesSeen(spans))
}
