// Package tracing implements the hooks of package telemetry, of the store and of the limiter with OpenTelemetry.
//
// It uses the API of OpenTelemetry, not its SDK: package otlp sends the spans.
package tracing

import (
	"context"
	"log/slog"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/counterd/counterd/internal/telemetry"
	"github.com/counterd/counterd/memcache"
)

// Start returns the hook that begins the span of a decision. If the caller's trace is not sampled, there is no span.
func Start(tracer trace.Tracer) telemetry.Start {
	return func(ctx context.Context, name string) (context.Context, telemetry.End) {
		if parent := trace.SpanContextFromContext(ctx); parent.IsValid() && !parent.IsSampled() {
			return ctx, nil
		}
		ctx, span := tracer.Start(ctx, name)
		return ctx, endOf(span)
	}
}

// StartRequest returns the hook that begins the span of a request. The caller's tracestate goes on as it came.
func StartRequest(tracer trace.Tracer) telemetry.StartRequest {
	return func(r *http.Request, name string, attributes ...slog.Attr) (context.Context, telemetry.End) {
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(convert(attributes)...))
		return ctx, endOf(span)
	}
}

// TraceID returns the ID of the context's trace, or an empty string.
func TraceID(ctx context.Context) string {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		return span.TraceID().String()
	}
	return ""
}

// endOf returns what ends the span, or nil if it is not recorded.
func endOf(span trace.Span) telemetry.End {
	if !span.IsRecording() {
		return nil
	}
	return func(failed bool, attributes ...slog.Attr) {
		span.SetAttributes(convert(attributes)...)
		if failed {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// convert returns the attributes as OpenTelemetry has them.
func convert(attributes []slog.Attr) []attribute.KeyValue {
	converted := make([]attribute.KeyValue, len(attributes))
	for i, a := range attributes {
		switch value := a.Value.Any().(type) {
		case int64:
			converted[i] = attribute.Int64(a.Key, value)
		case []string:
			converted[i] = attribute.StringSlice(a.Key, value)
		default:
			converted[i] = attribute.String(a.Key, a.Value.String())
		}
	}
	return converted
}

// Trips returns what makes a span of each trip, from when it began until it ended, as a
// child of the one in its context. A round trip without a span in its context, such as
// one of a repair, makes none.
func Trips(tracer trace.Tracer) func(context.Context, memcache.RoundTrip) {
	return func(ctx context.Context, trip memcache.RoundTrip) {
		if !trace.SpanFromContext(ctx).IsRecording() {
			return
		}
		outcome := memcache.OutcomeOf(trip.Err)
		_, span := tracer.Start(ctx, "memcached "+trip.Kind.String(),
			trace.WithSpanKind(trace.SpanKindClient),
			trace.WithTimestamp(trip.Began),
			trace.WithAttributes(
				semconv.DBSystemNameMemcached,
				semconv.ServerAddress(trip.Server),
				attribute.Int("counterd.adds", trip.Adds),
				attribute.Int("counterd.reads", trip.Reads),
				attribute.String("counterd.outcome", outcome),
			))
		if trip.Err != nil {
			// The error's text is for the log: here a word of a few is enough.
			span.SetAttributes(semconv.ErrorTypeKey.String(outcome))
			span.SetStatus(codes.Error, "")
		}
		span.End(trace.WithTimestamp(trip.Began.Add(trip.Took)))
	}
}

// Together notes in the span of a hit how many hits it was decided with, and links it to
// the span of the hit that made the trips for them, where that is another one.
func Together(hit, trips context.Context, hits int) {
	span, other := trace.SpanFromContext(hit), trace.SpanContextFromContext(trips)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.Int("counterd.combined", hits))
	if other.IsValid() && !other.Equal(span.SpanContext()) {
		span.AddLink(trace.Link{SpanContext: other})
	}
}
