package api

import (
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
)

// seen is what is noted of a request and its answer where somebody wants to know: the
// access log, or a trace. Nothing in it is of the client's choice, and no feature is: the
// route is the contract's, the event one of the rules. But the span has the trace of the
// client, with its tracestate, which is sent on as it came.
type seen struct {
	began   time.Time
	method  string // or Other
	route   string // its template, or Other
	event   string
	verdict string
	bytes   int64
	broken  bool       // it panicked
	span    trace.Span // nil: it is not traced
}

// What a decision is, in a word.
const (
	verdictAllowed     = "allowed"
	verdictDenied      = "denied"
	verdictUnavailable = "unavailable" // refused, since the store could not be asked
)

func verdictOf(d *hierarchy.Decision) string {
	switch {
	case d.Allowed:
		return verdictAllowed
	case d.Unavailable:
		return verdictUnavailable
	}
	return verdictDenied
}

// watched reports whether somebody wants to know what was asked and decided.
func (h *handler) watched() bool { return h.AccessLog || h.Tracer != nil }

// watch begins to note what becomes of the request, and returns it as one of its trace.
func (h *handler) watch(e *exchange, r *http.Request) *http.Request {
	e.seen = &seen{began: time.Now(), method: methodOf(r), route: routeOf(r)}
	r = h.trace(e.seen, r)
	if h.AccessLog {
		requestID(e, r)
	}
	return r
}

// tell tells who wants to know what has become of the request.
func (h *handler) tell(e *exchange, r *http.Request) {
	s := e.seen
	s.endSpan(e.status())
	if !h.AccessLog {
		return
	}
	attrs := make([]slog.Attr, 0, 8)
	attrs = append(attrs, slog.String("method", s.method), slog.String("route", s.route))
	if s.event != "" {
		attrs = append(attrs, slog.String("event", s.event))
	}
	attrs = append(attrs, slog.Int("status", e.status()))
	if s.verdict != "" {
		attrs = append(attrs, slog.String("verdict", s.verdict))
	}
	if e.client != "" {
		attrs = append(attrs, slog.String("client", e.client))
	}
	attrs = append(attrs, slog.Duration("duration", time.Since(s.began)), slog.Int64("bytes", s.bytes))
	h.logOf(e, r).LogAttrs(r.Context(), slog.LevelInfo, "request", attrs...)
}

// wrote notes that a part of the answer was written.
func (s *seen) wrote(bytes int) {
	if s != nil {
		s.bytes += int64(bytes)
	}
}

// broke notes that the request panicked.
func (s *seen) broke() {
	if s != nil {
		s.broken = true
	}
}

// seenOf returns what is noted of the request, or nil.
func seenOf(r *http.Request) *seen {
	if body, ok := r.Body.(heldBody); ok {
		return body.seen
	}
	return nil
}

// about notes the event that the request is about.
func (s *seen) about(event *events.Event) {
	if s != nil {
		s.event = event.Name
	}
}

// decided notes what was decided.
func (s *seen) decided(d *hierarchy.Decision) {
	if s != nil {
		s.verdict = verdictOf(d)
	}
}
