package api

import (
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/counterd/counterd/limiter"
	"github.com/counterd/counterd/service"
)

// requestInfo is what the access log or a trace says of a request and its answer. Nothing in
// it is of the client's choice, and no feature is: the route is the contract's, the event one
// of the rules. Only the span has the trace of the client, with its tracestate, which is sent
// on as it came. A nil requestInfo notes nothing.
type requestInfo struct {
	began   time.Time
	method  string // or Other
	route   string // its template, or Other
	event   string
	verdict string
	bytes   int64      // of the answer
	broken  bool       // it panicked
	span    trace.Span // nil: it is not traced
}

// wrote notes that a part of the answer was written.
func (i *requestInfo) wrote(bytes int) {
	if i != nil {
		i.bytes += int64(bytes)
	}
}

// panicked notes that the request panicked.
func (i *requestInfo) panicked() {
	if i != nil {
		i.broken = true
	}
}

// about notes the event that the request is about.
func (i *requestInfo) about(event string) {
	if i != nil {
		i.event = event
	}
}

// decided notes what was decided.
func (i *requestInfo) decided(d *limiter.Decision) {
	if i != nil {
		i.verdict = service.OutcomeOf(d).String()
	}
}

// observes reports whether there is an access log or a tracer.
func (h *handler) observes() bool { return h.AccessLog || h.Tracer != nil }

// observe begins to note what becomes of the request, in a span of its caller's trace.
func (h *handler) observe(x *exchange) {
	x.info = &requestInfo{began: time.Now(), method: methodOf(x.request), route: routeOf(x.request)}
	x.request = h.trace(x.info, x.request)
	if h.AccessLog {
		requestID(x, x.request)
	}
}

// report writes to the span and the access log what has become of the request.
func (h *handler) report(x *exchange) {
	i := x.info
	i.endSpan(x.finalStatus())
	if !h.AccessLog {
		return
	}
	attrs := make([]slog.Attr, 0, 8)
	attrs = append(attrs, slog.String("method", i.method), slog.String("route", i.route))
	if i.event != "" {
		attrs = append(attrs, slog.String("event", i.event))
	}
	attrs = append(attrs, slog.Int("status", x.finalStatus()))
	if i.verdict != "" {
		attrs = append(attrs, slog.String("verdict", i.verdict))
	}
	if client := x.admission.Client; client != "" {
		attrs = append(attrs, slog.String("client", client))
	}
	attrs = append(attrs, slog.Duration("duration", time.Since(i.began)), slog.Int64("bytes", i.bytes))
	h.logOf(x, x.request).LogAttrs(x.request.Context(), slog.LevelInfo, "request", attrs...)
}
