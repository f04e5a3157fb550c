package tracing_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/internal/telemetry/tracing"
	"github.com/counterd/counterd/memcache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newTracer() (trace.Tracer, *tracetest.SpanRecorder) {
	recorder := tracetest.NewSpanRecorder()
	return sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test"), recorder
}

func TestTrips(t *testing.T) {
	tracer, recorder := newTracer()
	tripped := tracing.Trips(tracer)
	began := time.Date(2026, 3, 14, 23, 30, 33, 0, time.UTC)
	ctx, parent := tracer.Start(t.Context(), "decide")
	tripped(ctx, memcache.RoundTrip{Server: "a:1", Kind: memcache.Exchange, Adds: 4, Reads: 60, Began: began, Took: time.Second})
	tripped(ctx, memcache.RoundTrip{Server: "b:1", Kind: memcache.RollBack, Adds: 4, Began: began, Took: time.Second,
		Err: errors.Join(errors.New("203.0.113.9"), os.ErrDeadlineExceeded)})
	tripped(t.Context(), memcache.RoundTrip{Server: "of nobody"})
	ended := recorder.Ended()
	require.Len(t, ended, 2, "a trip without a trace begins none")
	for _, span := range ended {
		assert.Equal(t, parent.SpanContext().SpanID(), span.Parent().SpanID())
		assert.Equal(t, trace.SpanKindClient, span.SpanKind())
		assert.Equal(t, began, span.StartTime())
		assert.Equal(t, began.Add(time.Second), span.EndTime())
		assert.Empty(t, span.Status().Description)
		assert.Empty(t, span.Events())
	}
	assert.Equal(t, "memcached exchange", ended[0].Name())
	assert.Equal(t, codes.Unset, ended[0].Status().Code)
	assert.ElementsMatch(t, []attribute.KeyValue{
		attribute.String("db.system.name", "memcached"), attribute.String("server.address", "a:1"),
		attribute.Int("counterd.adds", 4), attribute.Int("counterd.reads", 60), attribute.String("counterd.outcome", "ok"),
	}, ended[0].Attributes())
	assert.Equal(t, "memcached roll_back", ended[1].Name())
	assert.Equal(t, codes.Error, ended[1].Status().Code)
	assert.Contains(t, ended[1].Attributes(), attribute.String("error.type", "timeout"))
}

// A hit that went with another one's trips is linked to that one, and the other not to
// itself.
func TestTogether(t *testing.T) {
	tracer, recorder := newTracer()
	leader, its := tracer.Start(t.Context(), "decide")
	follower, others := tracer.Start(t.Context(), "decide")
	tracing.Together(leader, leader, 3)
	tracing.Together(follower, leader, 3)
	tracing.Together(context.Background(), leader, 3)
	its.End()
	others.End()
	ended := recorder.Ended()
	require.Len(t, ended, 2)
	for _, span := range ended {
		assert.Equal(t, []attribute.KeyValue{attribute.Int("counterd.combined", 3)}, span.Attributes())
	}
	assert.Empty(t, ended[0].Links())
	require.Len(t, ended[1].Links(), 1)
	assert.Equal(t, its.SpanContext(), ended[1].Links()[0].SpanContext)
}
