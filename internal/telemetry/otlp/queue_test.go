package otlp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// A span that is recorded and not sampled is not sent by the SDK: it takes no room, and
// is not lost.
func TestSpansThatAreNotSampledTakeNoRoom(t *testing.T) {
	counts := &tally{}
	q := queue{sdktrace.NewBatchSpanProcessor(counted{tracetest.NewNoopExporter(), counts}), counts, 1}
	span := func(flags trace.TraceFlags) {
		q.OnEnd(tracetest.SpanStub{SpanContext: trace.NewSpanContext(trace.SpanContextConfig{TraceFlags: flags})}.Snapshot())
	}
	for range 10 {
		span(0)
	}
	span(trace.FlagsSampled)
	assert.NoError(t, q.Shutdown(t.Context()))
	assert.Equal(t, Spans{Sent: 1}, counts.spans())
}

// Sizes that the SDK would panic with, or drop every span, are refused at the start.
func TestSizesThatCannotBe(t *testing.T) {
	for _, name := range []string{"OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"} {
		for _, size := range []string{"0", "-5"} {
			t.Run(name+size, func(t *testing.T) {
				t.Setenv(name, size)
				_, err := Open(t.Context(), Config{Endpoint: "http://127.0.0.1:1"})
				assert.EqualError(t, err, "otlp: "+name+" is above 0")
			})
		}
	}
}
