package service

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// startSpan begins the span of a decision. Where the caller has decided that its trace is not
// sampled there is a span that records nothing.
func startSpan(ctx context.Context, tracer trace.Tracer) (context.Context, trace.Span) {
	if parent := trace.SpanContextFromContext(ctx); parent.IsValid() && !parent.IsSampled() {
		return ctx, noop.Span{}
	}
	return tracer.Start(ctx, "decide")
}

// describe says in a span what was decided. A span holds names of the rules and numbers, no
// feature and no text of an error.
func describe(span trace.Span, hit limiter.Hit, call limiter.Call, d *limiter.Decision, err error) {
	span.SetAttributes(attribute.String("counterd.event", hit.Event.Name), attribute.String("counterd.call", call.String()))
	if len(hit.Parts) > 0 {
		span.SetAttributes(attribute.Int("counterd.parts", len(hit.Parts)))
	} else {
		span.SetAttributes(attribute.Int64("counterd.cost", hit.Cost))
	}
	if err != nil {
		span.SetStatus(codes.Error, "")
		return
	}
	span.SetAttributes(attributesOf(d)...)
}

// describeAll says in a span how many of several hits had which outcome.
func describeAll(span trace.Span, results []limiter.Result, hits int, err error) {
	span.SetAttributes(attribute.Int("counterd.hits", hits))
	if err != nil {
		span.SetStatus(codes.Error, "")
		return
	}
	faulty, outcomes := 0, [len(outcomeNames)]int{}
	for i := range results {
		if results[i].Err != nil {
			faulty++
		} else {
			outcomes[OutcomeOf(&results[i].Decision)]++
		}
	}
	for outcome, n := range outcomes {
		if n > 0 {
			span.SetAttributes(attribute.Int("counterd.hits."+outcomeNames[outcome], n))
		}
	}
	if faulty > 0 {
		span.SetAttributes(attribute.Int("counterd.hits.faulty", faulty))
	}
}

// attributesOf returns the outcome of a decision, and the names of its limits by what each
// of them says.
func attributesOf(d *limiter.Decision) []attribute.KeyValue {
	attrs := []attribute.KeyValue{attribute.String("counterd.verdict", OutcomeOf(d).String())}
	if d.RetryAfter != engine.Never {
		attrs = append(attrs, attribute.Int64("counterd.retry_after", d.RetryAfter.Seconds()))
	}
	var allowed, denied, shadow, failed []string
	for i := range d.Limits {
		limit := &d.Limits[i]
		if limit.Failed {
			failed = append(failed, limit.Name)
		}
		switch {
		case limit.Allowed:
			allowed = append(allowed, limit.Name)
		case limit.Shadow:
			shadow = append(shadow, limit.Name)
		case Denies(limit):
			denied = append(denied, limit.Name)
		}
	}
	for _, list := range []struct {
		key   string
		names []string
	}{
		{"counterd.limits.allowed", allowed}, {"counterd.limits.denied", denied},
		{"counterd.limits.shadow_denied", shadow}, {"counterd.limits.on_error", failed},
	} {
		if len(list.names) > 0 {
			attrs = append(attrs, attribute.StringSlice(list.key, list.names))
		}
	}
	return attrs
}
