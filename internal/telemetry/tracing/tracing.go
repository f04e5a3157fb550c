// Package tracing makes OpenTelemetry spans of what the store and the limiter tell: hand
// its functions to memcache.Config.OnRoundTrip and hierarchy.LimiterConfig.OnCoalesced. The spans
// of requests are made by package api, those of decisions by service.
//
// Only the API of OpenTelemetry is used, not its SDK: where spans go is up to the program. The root
// package does all of this by WithTracer: import this one beside packages hierarchy and memcache.
package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/counterd/counterd/memcache"
)

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
