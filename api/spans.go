package api

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/counterd/counterd/hierarchy"
)

// What a span says is the contract's, the rules' or a number: no path, query, address or
// header of a request, since each of them may hold a feature.

// trace begins the span of the request, in the trace of its caller, if it is one of those
// that are traced: whoever asks whether the process is well, or for its metrics, does so
// again and again, and decides nothing.
func (h *handler) trace(s *seen, r *http.Request) *http.Request {
	if h.Tracer == nil || s.route != Other && !strings.HasPrefix(s.route, "/v1/") {
		return r
	}
	name, attrs := s.method, make([]attribute.KeyValue, 0, 2)
	if s.method == Other {
		name = "HTTP"
		attrs = append(attrs, semconv.HTTPRequestMethodOther)
	} else {
		attrs = append(attrs, semconv.HTTPRequestMethodKey.String(s.method))
	}
	if s.route != Other {
		name += " " + s.route
		attrs = append(attrs, semconv.HTTPRoute(s.route))
	}
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, s.span = h.Tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attrs...))
	return r.WithContext(ctx)
}

// endSpan ends the span of the request, where it has one.
func (s *seen) endSpan(status int) {
	if s.span == nil {
		return
	}
	if s.span.IsRecording() {
		if s.event != "" {
			s.span.SetAttributes(attribute.String("counterd.event", s.event))
		}
		s.span.SetAttributes(semconv.HTTPResponseStatusCode(status))
		// A status of 4xx is the client's fault, or a denial.
		if s.broken || status >= http.StatusInternalServerError {
			s.span.SetStatus(codes.Error, "")
		}
	}
	s.span.End()
}

// hitOn has the limiter decide a hit.
func (h *handler) hitOn(r *http.Request, hit hierarchy.Hit) (hierarchy.Decision, error) {
	return h.decide(r, hit, hierarchy.CallHit, h.Limiter.Hit)
}

// decide has the hit decided, within a span.
func (h *handler) decide(r *http.Request, hit hierarchy.Hit, call hierarchy.Call, do func(context.Context, hierarchy.Hit) (hierarchy.Decision, error)) (hierarchy.Decision, error) {
	ctx, span := h.startDecide(r.Context())
	if span != nil {
		defer span.End() // whatever panics
	}
	d, err := do(ctx, hit)
	if err == nil {
		seenOf(r).decided(&d)
	}
	if span == nil {
		return d, err
	}
	if span.IsRecording() {
		span.SetAttributes(
			attribute.String("counterd.event", hit.Event.Name),
			attribute.String("counterd.call", call.String()),
			attribute.Int64("counterd.cost", hit.Cost),
		)
		if err == nil {
			span.SetAttributes(attributesOf(&d)...)
		} else {
			span.SetStatus(codes.Error, "") // its text is in the answer
		}
	}
	return d, err
}

// decideAll has several hits decided, within a span.
func (h *handler) decideAll(ctx context.Context, hits []hierarchy.Hit) ([]hierarchy.Result, error) {
	ctx, span := h.startDecide(ctx)
	if span != nil {
		defer span.End()
	}
	results, err := h.Limiter.Hits(ctx, hits)
	if span == nil {
		return results, err
	}
	if span.IsRecording() {
		span.SetAttributes(attribute.Int("counterd.hits", len(hits)))
		if err == nil {
			span.SetAttributes(tallyOf(results)...)
		} else {
			span.SetStatus(codes.Error, "")
		}
	}
	return results, err
}

// startDecide begins the span of a decision; nil: it is not traced, nor is one of a request
// that is not sampled.
func (h *handler) startDecide(ctx context.Context) (context.Context, trace.Span) {
	if h.Tracer == nil {
		return ctx, nil
	}
	if parent := trace.SpanContextFromContext(ctx); parent.IsValid() && !parent.IsSampled() {
		return ctx, nil
	}
	return h.Tracer.Start(ctx, "decide")
}

// attributesOf returns what a span says of a decision: of its limits the names, sorted by
// how they stand.
func attributesOf(d *hierarchy.Decision) []attribute.KeyValue {
	attrs := []attribute.KeyValue{attribute.String("counterd.verdict", verdictOf(d))}
	if d.RetryAfter != hierarchy.Never {
		attrs = append(attrs, attribute.Int64("counterd.retry_after", int64(d.RetryAfter)))
	}
	var allowed, denied, shadow, failed []string
	for i := range d.Limits {
		s := &d.Limits[i]
		if s.Failed {
			failed = append(failed, s.Name)
		}
		switch {
		case s.Allowed:
			allowed = append(allowed, s.Name)
		case s.Shadow:
			shadow = append(shadow, s.Name)
		case violated(s):
			denied = append(denied, s.Name)
		}
	}
	for _, of := range []struct {
		key   string
		names []string
	}{
		{"counterd.limits.allowed", allowed}, {"counterd.limits.denied", denied},
		{"counterd.limits.shadow_denied", shadow}, {"counterd.limits.on_error", failed},
	} {
		if len(of.names) > 0 {
			attrs = append(attrs, attribute.StringSlice(of.key, of.names))
		}
	}
	return attrs
}

// tallyOf returns what a span says of several decisions: how many of each kind there are.
func tallyOf(results []hierarchy.Result) []attribute.KeyValue {
	tally := map[string]int{}
	for i := range results {
		if results[i].Err != nil {
			tally["faulty"]++
		} else {
			tally[verdictOf(&results[i].Decision)]++
		}
	}
	var attrs []attribute.KeyValue
	for _, verdict := range []string{verdictAllowed, verdictDenied, verdictUnavailable, "faulty"} {
		if n := tally[verdict]; n > 0 {
			attrs = append(attrs, attribute.Int("counterd.hits."+verdict, n))
		}
	}
	return attrs
}
