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
// of the rules and numbers, no path, query, address or header: each may hold a feature. Only the
// caller's tracestate goes on as it came.
func (x *exchange) trace(tracer trace.Tracer) {
	if x.route != Other && !strings.HasPrefix(x.route, "/v1/") {
		return
	}
	name, attrs := x.method, make([]attribute.KeyValue, 0, 2)
	if x.method == Other {
		name = "HTTP"
		attrs = append(attrs, semconv.HTTPRequestMethodOther)
	} else {
		attrs = append(attrs, semconv.HTTPRequestMethodKey.String(x.method))
	}
	if x.route != Other {
		name += " " + x.route
		attrs = append(attrs, semconv.HTTPRoute(x.route))
	}
	ctx := propagation.TraceContext{}.Extract(x.request.Context(), propagation.HeaderCarrier(x.request.Header))
	ctx, x.span = tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attrs...))
	x.request = x.request.WithContext(ctx)
}

// endSpan ends the span of the request.
func (x *exchange) endSpan(status int) {
	if x.span.IsRecording() {
		if x.event != "" {
			x.span.SetAttributes(attribute.String("counterd.event", x.event))
		}
		x.span.SetAttributes(semconv.HTTPResponseStatusCode(status))
		// A status of 4xx is the client's fault, or a denial.
		if x.broken || status >= http.StatusInternalServerError {
			x.span.SetStatus(codes.Error, "")
		}
	}
	x.span.End()
}
