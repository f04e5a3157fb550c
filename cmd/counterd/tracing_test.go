package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/counterd/counterd/events"
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

// stop ends the process well, which sends the last spans.
func (p *process) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.Wait(), "%s", p.log)
	require.Contains(t, p.log.String(), "msg=stopped")
}

// The caller's place in its trace, as it tells of it.
const (
	callersTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	callersSpan  = "00f067aa0ba902b7"
	traceparent  = "00-" + callersTrace + "-" + callersSpan + "-01"
)

// exchange makes a request, and returns its answer and the answer's body.
func exchange(t *testing.T, method, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response, string(text)
}

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
	p := startProcess(t, "-rules", tracedRules(t), "-memcached", server.Addr, "-timeout", "5s", "-grace", "10s", "-otlp-endpoint", c.URL)
	untraced := "00-" + callersTrace + "-" + callersSpan + "-00"
	for range 5 {
		response, _ := exchange(t, "POST", p.url+"/v1/events/url_shorten/hit", traced, "traceparent", untraced)
		require.Equal(t, http.StatusOK, response.StatusCode)
	}
	exchange(t, "GET", p.url+"/healthz", "", "traceparent", traceparent)
	exchange(t, "GET", p.url+"/metrics", "", "traceparent", traceparent)
	response, _ := exchange(t, "POST", p.url+"/v1/events/url_shorten/hit", traced, "traceparent", traceparent, "tracestate", "vendor=1")
	require.Equal(t, http.StatusTooManyRequests, response.StatusCode)
	p.stop(t)

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

// With two copies a hit makes a trip to each server. One that does not answer is a trip,
// too, and so is one that is not asked.
func TestATraceWithCopies(t *testing.T) {
	for _, dead := range []bool{false, true} {
		t.Run(fmt.Sprintf("dead=%t", dead), func(t *testing.T) {
			c := startCollector(t)
			one, other := memcachedtest.Start(t), memcachedtest.Start(t)
			servers := []string{one.Addr, other.Addr}
			p := startProcess(t, "-rules", tracedRules(t), "-memcached", strings.Join(servers, ","), "-replicas", "2", "-timeout", "5s", "-grace", "10s", "-otlp-endpoint", c.URL)
			if dead {
				other.Stop()
			}
			response, _ := exchange(t, "POST", p.url+"/v1/events/url_shorten/hit", traced, "traceparent", traceparent, "tracestate", "vendor=1")
			require.Equal(t, http.StatusOK, response.StatusCode)
			p.stop(t)
			_, trips := c.requireNested(t, "200")
			outcomes := map[string]string{}
			for _, trip := range trips {
				a := trip.attributes()
				outcomes[a["server.address"]] = a["counterd.outcome"]
				assert.NotEqual(t, "0", a["counterd.adds"])
				assert.Equal(t, a["counterd.outcome"] != "ok", trip.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR)
				if a["counterd.outcome"] != "ok" {
					assert.Equal(t, a["counterd.outcome"], a["error.type"])
				}
			}
			require.Equal(t, "ok", outcomes[servers[0]])
			if dead {
				assert.Contains(t, []string{"refused", "down", ""}, outcomes[servers[1]], "if it is known to be down it may not be asked")
			} else {
				assert.Equal(t, "ok", outcomes[servers[1]])
			}
		})
	}
}

// A server that does not answer is a trip that ran out of time, and the decision says what
// was done instead.
func TestATraceOfAnOutage(t *testing.T) {
	c := startCollector(t)
	server := memcachedtest.Start(t)
	p := startProcess(t, "-memcached", server.Addr, "-rules", tracedRules(t), "-timeout", "1s", "-otlp-endpoint", c.URL)
	server.Pause()
	response, _ := exchange(t, "POST", p.url+"/v1/events/url_shorten/hit", traced, "traceparent", traceparent, "tracestate", "vendor=1")
	require.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
	id := response.Header.Get("X-Request-Id")
	require.NotEmpty(t, id)
	server.Resume()
	p.stop(t)
	decide, trips := c.requireNested(t, "503")
	require.NotEmpty(t, trips)
	assert.Equal(t, "timeout", trips[0].attributes()["counterd.outcome"])
	assert.Equal(t, "unavailable", decide.attributes()["counterd.verdict"])
	assert.Equal(t, "ip-5-per-1m,ip-100-per-24h", decide.attributes()["counterd.limits.on_error"])
	assert.Equal(t, tracepb.Status_STATUS_CODE_ERROR, c.named("POST /v1/events/{event}/hit")[0].Status.GetCode())
	assert.Regexp(t, `hits are refused.* request_id=`+id+` trace_id=`+callersTrace, p.log.String())
}

// A server that is known to be down is not asked, which is a trip that ended at once.
func TestATraceOfAServerThatIsDown(t *testing.T) {
	c := startCollector(t)
	p := startProcess(t, "-memcached", "127.0.0.1:1", "-rules", tracedRules(t), "-otlp-endpoint", c.URL)
	response, _ := exchange(t, "POST", p.url+"/v1/events/url_shorten/hit", traced, "traceparent", traceparent, "tracestate", "vendor=1")
	require.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
	p.stop(t)
	_, trips := c.requireNested(t, "503")
	require.NotEmpty(t, trips)
	assert.Equal(t, "127.0.0.1:1", trips[0].attributes()["server.address"])
	assert.Contains(t, []string{"down", "refused"}, trips[0].attributes()["counterd.outcome"])
}

// Whatever is asked, no span and no line of the log has a feature in it, nor where the
// client is or what it calls itself.
func TestNoFeatureInSpansAndLogs(t *testing.T) {
	c := startCollector(t)
	servers := strings.Join(append(memcachedtest.StartMany(t, 1), "127.0.0.1:1"), ",")
	rules := t.TempDir() + "/rules.yaml"
	testkit.WriteFile(t, rules, `
trusted_proxies: [127.0.0.1]
events:
  url_shorten: {limits: [{per: [ip, user], rate: [2/m, 100/d], on_error: allow}, {per: [user], rate: 100/d, deny: [secret-denied]}], from: {user: header X-User, ip: forwarded}}
  shadowed: {limits: [{per: user, rate: 1/d, shadow: true}]}
`)
	p := startProcess(t, "-memcached", servers, "-rules", rules, "-otlp-endpoint", c.URL, "-access-log")
	features := func(i int) string {
		return fmt.Sprintf(`{"features": {"ip": "203.0.113.%d", "user": "secret-%d"}}`, 100+i, i)
	}
	for i := range 10 {
		for range 4 {
			exchange(t, "POST", p.url+"/v1/events/url_shorten/hit", features(i), "User-Agent", "secret-agent")
		}
		query := fmt.Sprintf("?feature=ip:203.0.113.%d&feature=user:secret-%d", 100+i, i)
		for _, get := range []string{"/check" + query, "/count" + query + "&window=1m", "/history" + query + "&level=minute", "/nothing" + query, "/count" + query + "&window=secret"} {
			exchange(t, "GET", p.url+"/v1/events/url_shorten"+get, "")
		}
		exchange(t, "POST", p.url+"/v1/events/url_shorten/increment", features(i))
		exchange(t, "POST", p.url+"/v1/events/shadowed/hit", fmt.Sprintf(`{"features": {"user": "secret-%d"}}`, i%2))
		exchange(t, "POST", p.url+"/v1/batch", fmt.Sprintf(`{"hits": [{"event": "url_shorten", "features": {"ip": "203.0.113.%d", "user": "secret-b"}}, {"event": "secret", "features": {}}]}`, 100+i))
		exchange(t, "GET", p.url+"/v1/authorize/url_shorten", "", "X-User", fmt.Sprintf("secret-%d", i), "X-Forwarded-For", fmt.Sprintf("203.0.113.%d", 100+i))
		exchange(t, "DELETE", p.url+"/v1/events/url_shorten/counters"+query, "")
	}
	exchange(t, "POST", p.url+"/v1/events/url_shorten/hit", `{"features": {"ip": "203.0.113.9", "user": "secret-denied"}}`)
	exchange(t, "POST", p.url+"/v1/events/secret/hit", features(1))
	exchange(t, "SECRET", p.url+"/v1/events/url_shorten/secret", features(1))
	exchange(t, "POST", p.url+"/v1/events/url_shorten/hit", `{"features": {"ip": "secret-203.0.113."}}`)
	exchange(t, "POST", p.url+"/v1/events/url_shorten/hit", `{"secret": "203.0.113.`, "X-Request-Id", "a secret")
	p.stop(t)
	// Callers without a valid token choose their words, too.
	guarded := startProcess(t, "-rules", rules, "-otlp-endpoint", c.URL, "-access-log", "-tokens", testkit.SecretFile(t, "edge rules the-secret-of-the-edge\n"))
	for _, token := range []string{"", "Bearer secret-unknown-token", "Bearer the-secret-of-the-edge", "Basic secret"} {
		for _, method := range []string{"SECRET", "GET", "POST", "DELETE"} {
			for _, path := range []string{"hit", "secret", "count", "counters", "check?feature=user:secret"} {
				exchange(t, method, guarded.url+"/v1/events/url_shorten/"+path, features(1), "Authorization", token, "User-Agent", "secret-agent", "Counterd-Secret", "secret")
			}
			exchange(t, method, guarded.url+"/v1/authorize/secret", "", "Authorization", token, "X-User", "secret-1", "X-Forwarded-For", "203.0.113.1")
		}
	}
	guarded.stop(t)
	for _, reason := range []string{"missing", "unknown", "forbidden"} {
		assert.Contains(t, guarded.log.String(), "reason="+reason)
	}

	require.Greater(t, len(c.spans()), 200)
	seen := map[string]bool{}
	for _, s := range c.spans() {
		seen[s.Name] = true
	}
	for _, name := range []string{"GET", "HTTP", "POST /v1/events/{event}/hit", "GET /v1/authorize/{event}", "memcached exchange", "memcached roll_back", "memcached delete", "decide"} {
		assert.True(t, seen[name], "%s: %v", name, seen)
	}
	for name, text := range map[string]string{"spans": c.raw.String(), "log": withoutResets(p.log.String()), "log of refusals": guarded.log.String()} {
		for _, secret := range []string{"secret", "SECRET", "203.0.113", "Go-http-client"} {
			text := strings.ReplaceAll(text, "key_secret=", "") // a flag's name
			at := strings.Index(text, secret)
			assert.Negative(t, at, "%s: %q", name, text[max(at-100, 0):max(at+100, 0)%len(text)])
		}
	}
	assert.NotContains(t, c.raw.String(), p.url[len("http://"):], "nor the address served on")
}

// What the collector has got is what was sent, by the process's own word.
func TestMetricsTellOfSpans(t *testing.T) {
	c := startCollector(t)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	p := startProcess(t, "-rules", tracedRules(t), "-otlp-endpoint", c.URL)
	before, _ := scrape(t, p)
	for _, outcome := range []string{"sent", "queue_full", "export_failed"} {
		assert.Zero(t, before.take(t, `counterd_trace_spans_total{outcome="`+outcome+`"}`), outcome)
	}
	exchange(t, "POST", p.url+"/v1/events/url_shorten/hit", traced, "traceparent", traceparent)
	require.Eventually(t, func() bool {
		series, _ := scrape(t, p)
		return series[`counterd_trace_spans_total{outcome="sent"}`] == 2
	}, soon, 10*time.Millisecond, "the request and the decision")
	assert.Len(t, c.spans(), 2)
	after, text := scrape(t, p)
	assert.Zero(t, after.take(t, `counterd_trace_spans_total{outcome="queue_full"}`))
	assert.NotContains(t, text, "203.0.113.77")
	_, text = scrape(t, startProcess(t))
	assert.NotContains(t, text, "trace_spans", "where nothing is traced")
}

// A collector that is away, or does not answer, delays no hit.
func TestWithoutACollector(t *testing.T) {
	leaktest.Check(t)
	held := make(chan struct{})
	entered := make(chan struct{}, 100)
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-held
	}))
	defer slow.Close()
	defer close(held)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "16")
	for name, endpoint := range map[string]string{"down": "http://127.0.0.1:1", "slow": slow.URL} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
			p := startProcess(t)
			c := p.client(t)
			hit := func() {
				_, err := c.Hit(t.Context(), "url_shorten", events.Features{"ip": "203.0.113.77"}, 1)
				require.NoError(t, err)
			}
			hit()
			if name == "slow" {
				<-entered // from here on it holds what is sent to it
			} else {
				require.Eventually(t, func() bool { return strings.Contains(p.log.String(), "spans could not be sent") }, soon, 5*time.Millisecond)
			}
			for range 200 {
				hit()
			}
			series, _ := scrape(t, p)
			lost := series.take(t, `counterd_trace_spans_total{outcome="`+map[string]string{"down": "export_failed", "slow": "queue_full"}[name])
			assert.Positive(t, lost)
			if name == "slow" {
				assert.GreaterOrEqual(t, lost, 200.0-16, "a span at least is made of each hit")
			}
			assert.Zero(t, series.take(t, `counterd_trace_spans_total{outcome="sent"}`))
			p.stop(t)
			assert.Contains(t, p.log.String(), "spans could not be sent")
			assert.NotContains(t, p.log.String(), "203.0.113.77")
		})
	}
}

var accessLine = regexp.MustCompile(`msg=request request_id=(\S+)( trace_id=\S+)? method=(\S+) route=(\S+)( event=\S+)? status=(\d+)( verdict=\S+)? duration=\S+ bytes=\d+\n`)

func TestTheAccessLog(t *testing.T) {
	p := startProcess(t, "-access-log", "-rules", tracedRules(t))
	for i := range 6 {
		exchange(t, "POST", p.url+"/v1/events/url_shorten/hit", traced, "X-Request-Id", fmt.Sprintf("mine-%d", i))
	}
	response, _ := exchange(t, "GET", p.url+"/v1/events/203.0.113.9/count", "")
	made := response.Header.Get("X-Request-Id")
	exchange(t, "GET", p.url+"/203.0.113.9", "", "X-Request-Id", "x")
	exchange(t, "GET", p.url+"/metrics", "", "X-Request-Id", "m")
	p.stop(t)
	var lines []string
	for _, line := range accessLine.FindAllStringSubmatch(p.log.String(), -1) {
		lines = append(lines, strings.Join(slices.DeleteFunc(line[1:], func(s string) bool { return s == "" }), " "))
	}
	assert.Equal(t, []string{
		"mine-0 POST /v1/events/{event}/hit  event=url_shorten 200  verdict=allowed",
		"mine-1 POST /v1/events/{event}/hit  event=url_shorten 200  verdict=allowed",
		"mine-2 POST /v1/events/{event}/hit  event=url_shorten 200  verdict=allowed",
		"mine-3 POST /v1/events/{event}/hit  event=url_shorten 200  verdict=allowed",
		"mine-4 POST /v1/events/{event}/hit  event=url_shorten 200  verdict=allowed",
		"mine-5 POST /v1/events/{event}/hit  event=url_shorten 429  verdict=denied",
		made + " GET /v1/events/{event}/count 404",
		"x GET other 404",
		"m GET /metrics 200",
	}, lines, "%s", p.log)
	assert.NotContains(t, p.log.String(), "203.0.113")
}
