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
// route is the contract's, the event one of the rules.
type seen struct {
	began   time.Time
	method  string // a known one, or other
	route   string // the template; other, where there is none
	event   string
	verdict string
	status  int
	bytes   int64
	span    trace.Span // nil: it is not traced
}

// other stands for routes and methods that the contract does not have.
const other = "other"

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

// methodOf returns the request's method, if it is a known one. A client may call any word
// its method.
func methodOf(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return r.Method
	}
	return other
}

// watched reports whether somebody wants to know of each request.
func (h *handler) watched() bool { return h.AccessLog || h.Tracer != nil }

// watch begins to note what becomes of the request, and returns it as one of its trace.
func (h *handler) watch(e *exchange, r *http.Request, route string) *http.Request {
	e.seen = &seen{began: time.Now(), method: methodOf(r), route: route}
	r = h.trace(e.seen, r)
	if h.AccessLog {
		requestID(e, r)
	}
	return r
}

// tell tells who wants to know what has become of the request.
func (h *handler) tell(e *exchange, r *http.Request) {
	s := e.seen
	if s.status == 0 && !e.begun {
		s.status = http.StatusOK // net/http says so for whoever says nothing
	}
	s.endSpan()
	if !h.AccessLog {
		return
	}
	attrs := make([]slog.Attr, 0, 8)
	attrs = append(attrs, slog.String("method", s.method), slog.String("route", s.route))
	if s.event != "" {
		attrs = append(attrs, slog.String("event", s.event))
	}
	attrs = append(attrs, slog.Int("status", s.status))
	if s.verdict != "" {
		attrs = append(attrs, slog.String("verdict", s.verdict))
	}
	attrs = append(attrs, slog.Duration("duration", time.Since(s.began)), slog.Int64("bytes", s.bytes))
	h.logOf(e, r).LogAttrs(r.Context(), slog.LevelInfo, "request", attrs...)
}

// answered notes the answer's status.
func (s *seen) answered(status int) {
	if s != nil && s.status == 0 && status >= http.StatusOK {
		s.status = status
	}
}

// wrote notes that a part of the answer was written.
func (s *seen) wrote(bytes int) {
	if s != nil {
		s.answered(http.StatusOK) // as net/http has it
		s.bytes += int64(bytes)
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
