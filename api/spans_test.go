package api_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/httpdecision"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/telemetry/tracing"
	"github.com/counterd/counterd/memcache"
)

func limiterOn(tb testing.TB, store store.Store) *limiter.Limiter {
	tb.Helper()
	decider, err := limiter.New(limiter.Config{Timeout: 20 * time.Second}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: store, Clock: clock, Grace: 40 * time.Second}))
	require.NoError(tb, err)
	return decider
}

// recorded is a handler whose spans can be read.
type recorded struct {
	http.Handler
	tracer trace.Tracer
	spans  *tracetest.SpanRecorder
}

func newRecorded(tb testing.TB, store store.Store, options ...sdktrace.TracerProviderOption) recorded {
	tb.Helper()
	spans := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(append(options, sdktrace.WithSpanProcessor(spans))...).Tracer("test")
	rules, err := rulesfile.Parse([]byte("events: {e: {limits: [{per: ip, rate: 2/m}, {per: ip, name: maybe, rate: 1/m, shadow: true}, {per: user, rate: 1/m, deny: [nobody]}]}}"))
	require.NoError(tb, err)
	return recorded{newDescribed(api.ServerConfig{
		Service: newService(service.Config{
			Rules:     func() *events.Rules { return rules },
			Counters:  counting.New(counting.Config{}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: store, Clock: clock})),
			Limiter:   limiterOn(tb, store),
			StartSpan: tracing.Start(tracer),
		}),
		StartSpan: tracing.StartRequest(tracer), TraceID: tracing.TraceID, Log: slog.New(slog.DiscardHandler),
	}), tracer, spans}
}

// decide returns what the span of the last decision says.
func (r recorded) decide(t *testing.T) (said map[string]any, span sdktrace.ReadOnlySpan) {
	t.Helper()
	for _, ended := range r.spans.Ended() {
		if ended.Name() == "decide" {
			span = ended
		}
	}
	require.NotNil(t, span)
	said = map[string]any{}
	for _, a := range span.Attributes() {
		said[strings.TrimPrefix(string(a.Key), "counterd.")] = a.Value.AsInterface()
	}
	r.spans.Reset()
	return said, span
}

func TestWhatSpansSayOfDecisions(t *testing.T) {
	h := newRecorded(t, memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock}))
	const hit = `{"features": {"ip": "203.0.113.9"}}`
	request(t, h, "POST", "/v1/events/e/hit", hit)
	said, _ := h.decide(t)
	assert.Equal(t, map[string]any{"event": "e", "call": "hit", "cost": int64(1), "verdict": "allowed", "retry_after": int64(0), "limits.allowed": []string{"ip-2-per-1m", "maybe"}}, said)
	request(t, h, "POST", "/v1/events/e/hit", hit)
	said, _ = h.decide(t)
	assert.Equal(t, []string{"maybe"}, said["limits.shadow_denied"])
	assert.Equal(t, "allowed", said["verdict"])
	request(t, h, "GET", "/v1/events/e/check?feature=ip:203.0.113.9&cost=3", "")
	said, span := h.decide(t)
	assert.Equal(t, "check", said["call"])
	assert.Equal(t, "denied", said["verdict"])
	assert.Equal(t, []string{"ip-2-per-1m"}, said["limits.denied"])
	assert.NotContains(t, said, "retry_after", "it can never be")
	assert.Equal(t, codes.Unset, span.Status().Code)
	request(t, h, "POST", "/v1/batch", `{"hits": [{"event": "e", "features": {"ip": "203.0.113.8"}}, {"event": "e", "features": {"ip": "203.0.113.9"}}, {"event": "e", "features": {"ip": "x"}}, {"event": "none", "features": {}}]}`)
	said, _ = h.decide(t)
	assert.Equal(t, map[string]any{"hits": int64(4), "hits.allowed": int64(1), "hits.denied": int64(1), "hits.faulty": int64(2)}, said)
	request(t, h, "POST", "/v1/events/e/hit", `{"features": {"ip": "203.0.113.9"}, "cost": -1}`)
	said, span = h.decide(t)
	assert.NotContains(t, said, "verdict")
	assert.Equal(t, codes.Error, span.Status().Code)
	assert.Empty(t, span.Status().Description)
	assert.Empty(t, span.Events())

	// An answer that could not be given is an error of the request.
	down := newRecorded(t, failingStore{})
	request(t, down, "POST", "/v1/events/e/increment", hit)
	require.Len(t, down.spans.Ended(), 1)
	assert.Equal(t, codes.Error, down.spans.Ended()[0].Status().Code)
	assert.Contains(t, down.spans.Ended()[0].Attributes(), attribute.Int("http.response.status_code", 503))
}

// A panic loses no span: what was done when it came is what is looked for then.
func TestSpansOfAPanic(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	decider, err := limiter.New(limiter.Config{
		OnDecision: func(context.Context, limiter.Hit, *events.Decision, limiter.Call) { panic("told") }}, hierarchy.NewCounters(hierarchy.Config{CacheBytes: 1 << 19, Store: memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock}), Clock: clock}))
	require.NoError(t, err)
	rules := testRules()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
	h := newDescribed(api.ServerConfig{
		Service: newService(service.Config{Rules: func() *events.Rules { return rules }, Limiter: decider, StartSpan: tracing.Start(tracer)}),
		Log:     slog.New(slog.DiscardHandler), StartSpan: tracing.StartRequest(tracer),
	})
	for _, asked := range [][2]string{{"/v1/events/url_shorten/hit", who}, {"/v1/batch", `{"hits": [` + goodHit + `]}`}} {
		require.Equal(t, 500, request(t, h, "POST", asked[0], asked[1]).Code)
		var names []string
		for _, span := range spans.Ended() {
			names = append(names, span.Name())
		}
		assert.Equal(t, []string{"decide", "POST " + strings.Replace(asked[0], "url_shorten", "{event}", 1)}, names)
		spans.Reset()
	}
}

// gone is a client that an answer cannot be written to.
type gone struct{ *httptest.ResponseRecorder }

func (gone) Write([]byte) (int, error) { panic("gone") }

// An answer that is broken off is an error, whatever status it began with.
func TestSpanOfAnAnswerThatIsBrokenOff(t *testing.T) {
	h := newRecorded(t, memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock}))
	w := gone{httptest.NewRecorder()}
	assert.PanicsWithValue(t, http.ErrAbortHandler, func() { h.ServeHTTP(w, httptest.NewRequest("GET", "/v1/events", nil)) })
	require.Equal(t, http.StatusOK, w.Code)
	require.Len(t, h.spans.Ended(), 1)
	assert.Equal(t, codes.Error, h.spans.Ended()[0].Status().Code)
}

// The caller's word on sampling counts, also where it says no.
func TestTheCallerSaysWhatIsSampled(t *testing.T) {
	for flags, want := range map[string]int{"00": 0, "01": 2} {
		h := newRecorded(t, memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock}))
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/events/e/hit", strings.NewReader(`{"features": {"ip": "203.0.113.9"}}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"+flags)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code)
		assert.Len(t, h.spans.Ended(), want)
	}
	h := newRecorded(t, memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: clock}), sdktrace.WithSampler(sdktrace.NeverSample()))
	request(t, h, "GET", "/v1/events", "")
	assert.Empty(t, h.spans.Ended())
}

// In a program the span of its request is the parent of the decision.
func TestSpansOfAMiddleware(t *testing.T) {
	h := newRecorded(t, failingStore{})
	rules := events.Example()
	m, err := httpdecision.NewMiddleware(httpdecision.MiddlewareConfig{
		Service: newService(service.Config{Rules: func() *events.Rules { return rules }, StartSpan: tracing.Start(h.tracer)}),
		Event:   "url_shorten", From: map[string]httpdecision.Extractor{"ip": httpdecision.FromPeer},
	})
	require.NoError(t, err)
	ctx, parent := h.tracer.Start(t.Context(), "the program's")
	r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
	w := httptest.NewRecorder()
	m(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code)
	said, span := h.decide(t)
	assert.Equal(t, "allowed", said["verdict"])
	assert.Equal(t, parent.SpanContext().SpanID(), span.Parent().SpanID())
}
