package api

import (
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// trace begins the span of the request, in the trace of its caller. Probes and scrapes have
// none: they come again and again, and decide nothing. A span holds names of the contract and
// of the rules and numbers, no path, query, address or header: each may hold a feature.
func (h *handler) trace(i *requestInfo, r *http.Request) *http.Request {
	if h.Tracer == nil || i.route != Other && !strings.HasPrefix(i.route, "/v1/") {
		return r
	}
	name, attrs := i.method, make([]attribute.KeyValue, 0, 2)
	if i.method == Other {
		name = "HTTP"
		attrs = append(attrs, semconv.HTTPRequestMethodOther)
	} else {
		attrs = append(attrs, semconv.HTTPRequestMethodKey.String(i.method))
	}
	if i.route != Other {
		name += " " + i.route
		attrs = append(attrs, semconv.HTTPRoute(i.route))
	}
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, i.span = h.Tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attrs...))
	return r.WithContext(ctx)
}

// endSpan ends the span of the request, where it has one.
func (i *requestInfo) endSpan(status int) {
	if i.span == nil {
		return
	}
	if i.span.IsRecording() {
		if i.event != "" {
			i.span.SetAttributes(attribute.String("counterd.event", i.event))
		}
		i.span.SetAttributes(semconv.HTTPResponseStatusCode(status))
		// A status of 4xx is the client's fault, or a denial.
		if i.broken || status >= http.StatusInternalServerError {
			i.span.SetStatus(codes.Error, "")
		}
	}
	i.span.End()
}
