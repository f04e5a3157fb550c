package otlp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// A span that is recorded and not sampled is not sent by the SDK: it takes nobody's room, and
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
