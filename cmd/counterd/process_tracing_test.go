package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// collector takes spans, as an OpenTelemetry collector does.
type collector struct {
	*httptest.Server
	mu      sync.Mutex
	raw     bytes.Buffer // all that was sent
	paths   []string
	headers []http.Header
	batches []*tracepb.ResourceSpans
}

func startCollector(t *testing.T) *collector {
	t.Helper()
	leaktest.Check(t)
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		var request collectorpb.ExportTraceServiceRequest
		assert.NoError(t, proto.Unmarshal(body, &request))
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raw.Write(body)
		c.paths = append(c.paths, r.URL.Path)
		c.headers = append(c.headers, r.Header)
		c.batches = append(c.batches, request.ResourceSpans...)
	}))
	t.Cleanup(c.Close)
	return c
}

// spans returns the spans that have come, in the order in which they began.
func (c *collector) spans() (all []span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, batch := range c.batches {
		for _, scope := range batch.ScopeSpans {
			for _, s := range scope.Spans {
				all = append(all, span{s})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b span) int { return int(a.StartTimeUnixNano) - int(b.StartTimeUnixNano) })
	return all
}

// named returns the spans of that name.
func (c *collector) named(name string) (found []span) {
	for _, s := range c.spans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// under returns the children of a span.
func (c *collector) under(parent span) (found []span) {
	for _, s := range c.spans() {
		if bytes.Equal(s.ParentSpanId, parent.SpanId) {
			found = append(found, s)
		}
	}
	return found
}

type span struct{ *tracepb.Span }

// attributes returns the span's attributes, as they are written.
func (s span) attributes() map[string]string { return textsOf(s.Attributes) }

func textsOf(attributes []*commonpb.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range attributes {
		all[a.Key] = textOf(a.Value)
	}
	return all
}

func textOf(v *commonpb.AnyValue) string {
	switch v := v.Value.(type) {
	case *commonpb.AnyValue_ArrayValue:
		var texts []string
		for _, one := range v.ArrayValue.Values {
			texts = append(texts, textOf(one))
		}
		return strings.Join(texts, ",")
	case *commonpb.AnyValue_IntValue:
		return fmt.Sprint(v.IntValue)
	}
	return v.GetStringValue()
}

// The caller's place in its trace, as it tells of it.
const (
	callersTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	callersSpan  = "00f067aa0ba902b7"
	traceparent  = "00-" + callersTrace + "-" + callersSpan + "-01"
)

const traced = `{"features": {"ip": "203.0.113.77"}}`

// tracedRules writes a rules file with the event that is traced.
func tracedRules(t *testing.T) string {
	t.Helper()
	path := t.TempDir() + "/rules.yaml"
	testkit.WriteFile(t, path, "events: {url_shorten: {limits: [{per: ip, rate: [5/m, 100/d], on_error: deny}]}}\n")
	return path
}

// requireNested finds the one request of the caller's trace, its decision, and returns
// that and its trips, which have to be within it in time.
func (c *collector) requireNested(t *testing.T, status string) (decide span, trips []span) {
	t.Helper()
	served := c.named("POST /v1/events/{event}/hit")
	require.Len(t, served, 1)
	request := served[0]
	assert.Equal(t, callersTrace, fmt.Sprintf("%x", request.TraceId))
	assert.Equal(t, callersSpan, fmt.Sprintf("%x", request.ParentSpanId))
	assert.Equal(t, "vendor=1", request.TraceState)
	assert.Equal(t, tracepb.Span_SPAN_KIND_SERVER, request.Kind)
	assert.Equal(t, map[string]string{
		"http.request.method": "POST", "http.route": "/v1/events/{event}/hit", "http.response.status_code": status, "counterd.event": "url_shorten",
	}, request.attributes())
	decided := c.under(request)
	require.Len(t, decided, 1)
	decide = decided[0]
	assert.Equal(t, "decide", decide.Name)
	trips = c.under(decide)
	for _, s := range append(trips, decide) {
		assert.Equal(t, request.TraceId, s.TraceId)
		assert.LessOrEqual(t, s.StartTimeUnixNano, s.EndTimeUnixNano, s.Name)
		assert.GreaterOrEqual(t, s.StartTimeUnixNano, request.StartTimeUnixNano, s.Name)
		assert.LessOrEqual(t, s.EndTimeUnixNano, request.EndTimeUnixNano, s.Name)
	}
	for _, trip := range trips {
		assert.Equal(t, tracepb.Span_SPAN_KIND_CLIENT, trip.Kind)
		assert.Equal(t, "memcached", trip.attributes()["db.system.name"])
	}
	return decide, trips
}

// A trace of one hit shows the request, the decision and each trip.
func TestATraceOfAHit(t *testing.T) {
	c := startCollector(t)
	server := memcachedtest.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-scope=ops")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	p := startProcess(t, "-rules", tracedRules(t), "-memcached", server.Addr, "-access-log", "-otlp-endpoint", c.URL)
	hit := func(traceparent string) int {
		answered, _ := ask(t, "POST", p.url+"/v1/events/url_shorten/hit", traced, "traceparent", traceparent, "tracestate", "vendor=1", "X-Request-Id", "mine")
		return answered
	}
	for range 5 {
		require.Equal(t, http.StatusOK, hit("00-"+callersTrace+"-"+callersSpan+"-00"))
	}
	for _, path := range []string{"/healthz", "/metrics"} {
		ask(t, "GET", p.url+path, "", "traceparent", traceparent)
	}
	require.Equal(t, http.StatusTooManyRequests, hit(traceparent))
	p.stop(t)
	assert.Regexp(t, `msg=request request_id=mine trace_id=`+callersTrace+` method=POST route=/v1/events/\{event\}/hit event=url_shorten status=429 verdict=denied duration=\S+ bytes=\d+\n`, p.log.String())
	assert.NotContains(t, p.log.String(), "203.0.113")

	decide, trips := c.requireNested(t, "429")
	said := decide.attributes()
	assert.NotEqual(t, "0", said["counterd.retry_after"])
	delete(said, "counterd.retry_after")
	assert.Equal(t, map[string]string{
		"counterd.event": "url_shorten", "counterd.call": "hit", "counterd.cost": "1", "counterd.verdict": "denied",
		"counterd.limits.allowed": "ip-100-per-24h", "counterd.limits.denied": "ip-5-per-1m",
	}, said)
	names := map[string]int{}
	for _, trip := range trips {
		a := trip.attributes()
		assert.Equal(t, server.Addr, a["server.address"])
		assert.Equal(t, "ok", a["counterd.outcome"])
		assert.NotEqual(t, tracepb.Status_STATUS_CODE_ERROR, trip.Status.GetCode())
		names[trip.Name+" adds="+a["counterd.adds"]]++
		if a["counterd.reads"] != "0" {
			names["with reads"]++
		}
	}
	assert.Equal(t, 1, names["memcached exchange adds=4"], "%v", names)
	assert.Equal(t, 1, names["memcached roll_back adds=4"], "%v", names)
	assert.Positive(t, names["with reads"], "a denial says when there is room again: %v", names)
	assert.Len(t, c.spans(), 2+len(trips), "what its caller does not sample is not traced, nor are probes")
	assert.Equal(t, []string{"/v1/traces"}, slices.Compact(c.paths))
	assert.Equal(t, "ops", c.headers[0].Get("x-scope"))
	of := textsOf(c.batches[0].Resource.Attributes)
	assert.Equal(t, "counterd", of["service.name"])
	assert.Equal(t, "test", of["deployment.environment.name"])
}

// A server that does not answer is a trip that ran out of time, and the decision says what was done instead.
func TestATraceOfAnOutage(t *testing.T) {
	c := startCollector(t)
	server := memcachedtest.Start(t)
	p := startProcess(t, "-memcached", server.Addr, "-rules", tracedRules(t), "-timeout", "500ms", "-otlp-endpoint", c.URL)
	server.Pause()
	answered, _ := ask(t, "POST", p.url+"/v1/events/url_shorten/hit", traced, "traceparent", traceparent, "tracestate", "vendor=1", "X-Request-Id", "mine")
	require.Equal(t, http.StatusServiceUnavailable, answered)
	server.Resume()
	p.stop(t)
	decide, trips := c.requireNested(t, "503")
	require.NotEmpty(t, trips)
	assert.Equal(t, "timeout", trips[0].attributes()["counterd.outcome"])
	assert.Equal(t, "unavailable", decide.attributes()["counterd.verdict"])
	assert.Equal(t, "ip-5-per-1m,ip-100-per-24h", decide.attributes()["counterd.limits.on_error"])
	assert.Equal(t, tracepb.Status_STATUS_CODE_ERROR, c.named("POST /v1/events/{event}/hit")[0].Status.GetCode())
	assert.Regexp(t, `hits are refused.* request_id=mine trace_id=`+callersTrace, p.log.String())
}
