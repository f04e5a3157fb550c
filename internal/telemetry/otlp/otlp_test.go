package otlp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/counterd/counterd/internal/telemetry/otlp"
	"github.com/counterd/counterd/internal/testkit/leaktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEndpoint(t *testing.T) {
	for _, test := range []struct{ named, traces, general, want string }{
		{"", "", "", ""},
		{"http://a:4318", "", "", "http://a:4318/v1/traces"},
		{"https://a/otlp/", "http://b", "http://c", "https://a/otlp/v1/traces"},
		{"", "http://b/as/it/is", "http://c", "http://b/as/it/is"},
		{"", "", "http://c:4318/", "http://c:4318/v1/traces"},
	} {
		t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", test.traces)
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", test.general)
		got, err := otlp.Endpoint(test.named)
		require.NoError(t, err)
		assert.Equal(t, test.want, got)
	}
	t.Setenv("OTEL_SDK_DISABLED", "true")
	got, err := otlp.Endpoint("")
	require.NoError(t, err)
	assert.Empty(t, got)
	t.Setenv("OTEL_SDK_DISABLED", "")
	for _, wrong := range []string{"a:4318", "grpc://a:4317", "http://", "http://user:hush@a", "http://a?key=hush", "http://a\x00hush", "hush"} {
		_, err := otlp.Endpoint(wrong)
		require.Error(t, err, wrong)
		assert.NotContains(t, err.Error(), "hush")
		t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
		if strings.Contains(wrong, "\x00") {
			continue // not in an environment
		}
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", wrong)
		_, err = otlp.Endpoint("")
		assert.ErrorContains(t, err, "OTEL_EXPORTER_OTLP_ENDPOINT: ", wrong)
		t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", wrong)
		_, err = otlp.Endpoint("")
		assert.ErrorContains(t, err, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: ", wrong)
	}
}

// A collector that does not answer holds up neither the making of spans, however many, nor Close
// for longer than its context. No goroutine is left then.
func TestACollectorThatDoesNotAnswer(t *testing.T) {
	leaktest.Check(t)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "8")
	t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "3600000")
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000")
	held, entered := make(chan struct{}), make(chan struct{}, 1000)
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-held
	}))
	defer slow.Close()
	defer close(held)
	e, err := otlp.Open(t.Context(), otlp.Config{Endpoint: slow.URL})
	require.NoError(t, err)
	tracer := e.Tracer("test")
	span := func() {
		_, span := tracer.Start(t.Context(), "x")
		span.End()
	}
	span()
	<-entered
	for range 1000 {
		span()
	}
	assert.Equal(t, otlp.Spans{QueueFull: 1000 - 8}, e.Spans(), "one is under way, eight wait, none is forgotten")
	ctx, end := context.WithCancel(t.Context())
	end()
	err = e.Close(ctx)
	require.ErrorIs(t, err, context.Canceled)
	span() // after the end it goes nowhere
}

// All spans are sent, dropped by a full queue or dropped with a batch that failed, and each
// is counted once, whatever the SDK does with them.
func TestEachSpanIsCountedOnce(t *testing.T) {
	leaktest.Check(t)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "16")
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
	var requests atomic.Int64
	made := make(chan struct{})
	fickle := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-made
		if requests.Add(1)%3 == 0 {
			http.Error(w, "not this one", http.StatusBadRequest)
		}
	}))
	defer fickle.Close()
	e, err := otlp.Open(t.Context(), otlp.Config{Endpoint: fickle.URL})
	require.NoError(t, err)
	tracer := e.Tracer("test")
	var making sync.WaitGroup
	const makers, each = 8, 500
	for range makers {
		making.Go(func() {
			for range each {
				_, span := tracer.Start(t.Context(), "x")
				span.End()
			}
		})
	}
	making.Wait()
	close(made)
	require.NoError(t, e.Close(t.Context()))
	spans := e.Spans()
	assert.Equal(t, int64(makers*each), spans.Sent+spans.QueueFull+spans.ExportFailed)
	assert.Positive(t, spans.Sent)
	assert.GreaterOrEqual(t, spans.QueueFull, int64(makers*each-4-16), "but for a batch under way and what waits")
	assert.Positive(t, spans.ExportFailed)
}

// A batch of which the collector refuses a part counts as one that failed: the SDK does not
// tell how much of it that was.
func TestABatchThatIsTakenInPart(t *testing.T) {
	leaktest.Check(t)
	answer, err := proto.Marshal(&collectorpb.ExportTraceServiceResponse{PartialSuccess: &collectorpb.ExportTracePartialSuccess{RejectedSpans: 1}})
	require.NoError(t, err)
	choosy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, err := w.Write(answer)
		assert.NoError(t, err)
	}))
	defer choosy.Close()
	e, err := otlp.Open(t.Context(), otlp.Config{Endpoint: choosy.URL})
	require.NoError(t, err)
	for range 2 {
		_, span := e.Tracer("test").Start(t.Context(), "x")
		span.End()
	}
	require.NoError(t, e.Close(t.Context()))
	assert.Equal(t, otlp.Spans{ExportFailed: 2}, e.Spans())
}

// The answer of the collector is reported, but not all of it.
func TestWhatGoesWrongIsTold(t *testing.T) {
	leaktest.Check(t)
	long := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no room "+strings.Repeat("x", 10_000), http.StatusBadRequest)
	}))
	defer long.Close()
	var told atomic.Pointer[error]
	e, err := otlp.Open(t.Context(), otlp.Config{Endpoint: long.URL, Report: func(err error) { told.Store(&err) }})
	require.NoError(t, err)
	_, span := e.Tracer("test").Start(t.Context(), "x")
	span.End()
	require.NoError(t, errors.Join(e.Close(t.Context())))
	require.NotNil(t, told.Load())
	text := (*told.Load()).Error()
	assert.Contains(t, text, "no room")
	assert.Less(t, len(text), 400)
}

// Of a malformed environment, which may hold a key, Report gets that it is malformed and nothing
// else, and standard error gets nothing.
func TestTheEnvironmentIsNotRepeated(t *testing.T) {
	leaktest.Check(t)
	var told []string
	for _, headers := range []string{"hush", "hush key=hush", "key=%hush", "key=%zzhush,hush"} {
		t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", headers)
		before := len(told)
		e, err := otlp.Open(t.Context(), otlp.Config{Endpoint: "http://127.0.0.1:1", Report: func(err error) { told = append(told, err.Error()) }})
		require.NoError(t, err)
		require.NoError(t, e.Close(t.Context()))
		assert.Greater(t, len(told), before, headers)
	}
	for _, text := range told {
		assert.NotContains(t, text, "hush")
	}
}

// The key of a collector goes to that collector alone, wherever it redirects to.
func TestNoRedirectIsFollowed(t *testing.T) {
	leaktest.Check(t)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=sesame")
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		var leaked atomic.Int64
		elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { leaked.Add(1) }))
		var asked atomic.Int64
		collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			assert.Equal(t, "sesame", r.Header.Get("X-Api-Key"))
			http.Redirect(w, r, elsewhere.URL, status)
		}))
		var mu sync.Mutex
		var reported []error
		e, err := otlp.Open(t.Context(), otlp.Config{Endpoint: collector.URL, Report: func(err error) {
			mu.Lock()
			defer mu.Unlock()
			reported = append(reported, err)
		}})
		require.NoError(t, err)
		_, span := e.Tracer("test").Start(t.Context(), "x")
		span.End()
		_ = e.Close(t.Context())
		assert.Positive(t, asked.Load())
		assert.Zero(t, leaked.Load(), "status %d", status)
		mu.Lock()
		assert.ErrorContains(t, errors.Join(reported...), "redirects")
		mu.Unlock()
		collector.Close()
		elsewhere.Close()
	}
}
