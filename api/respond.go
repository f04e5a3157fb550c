package api

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/internal/sparse"
	"github.com/counterd/counterd/service"
)

// responder writes answers, and logs why they are not what was asked for: each cause at most
// once a second.
type responder struct {
	log      *slog.Logger
	failures sparse.Lines   // by their causes
	refusals sparse.Lines   // by their reasons
	outage   rate.Sometimes // hits that are refused because the store does not answer
}

// newResponder returns a responder; nil: it logs to slog.Default.
func newResponder(log *slog.Logger) *responder {
	if log == nil {
		log = slog.Default()
	}
	return &responder{log: log, outage: rate.Sometimes{Interval: time.Second}}
}

// logOf returns the log for a line about the request.
func (p *responder) logOf(w http.ResponseWriter, r *http.Request) *slog.Logger {
	log := p.log.With("request_id", requestID(w, r))
	if span := trace.SpanContextFromContext(r.Context()); span.IsValid() {
		log = log.With("trace_id", span.TraceID().String())
	}
	return log
}

// field is a header field. Its name is in canonical form.
type field struct{ name, value string }

// setFields sets header fields that have a value. The values share one array, of which each
// field has its own place with no room behind it.
func setFields(header http.Header, fields ...field) {
	values := make([]string, len(fields))
	for i, f := range fields {
		if f.value != "" {
			values[i] = f.value
			header[f.name] = values[i : i+1 : i+1]
		}
	}
}

// maxUncounted is the length up to which net/http sets the Content-Length itself. A longer
// body it would send in chunks.
const maxUncounted = 2 << 10

// answer writes a body.
func (p *responder) answer(w http.ResponseWriter, status int, mediaType string, body any) {
	buffer := newBuffer()
	defer buffer.free()
	if err := buffer.encode(body); err != nil {
		// Only a mistake in this package leads here.
		p.log.Error("an answer cannot be encoded", "error", err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	buffer.text = append(buffer.text, '\n')
	setFields(w.Header(), field{"Content-Type", mediaType}, field{"Cache-Control", "no-store"}, field{"X-Content-Type-Options", "nosniff"})
	if len(buffer.text) > maxUncounted {
		w.Header().Set("Content-Length", strconv.Itoa(len(buffer.text)))
	}
	w.WriteHeader(status)
	// Only a client that has left misses what is not written. No writer keeps its argument.
	_, _ = w.Write(buffer.text)
}

// retryOverload is after how many seconds a client may try again that is refused for what
// others ask.
const retryOverload = "1"

// answerError writes the problem document of an error. It has the request's name, by which
// the log can be searched for more.
func (p *responder) answerError(w http.ResponseWriter, r *http.Request, err error) {
	problem := problemOf(err, r.Method)
	requestID(w, r)
	p.logError(w, r, problem.Status, err)
	if refusal, ok := errors.AsType[*service.Refusal](err); ok {
		w.Header().Set("WWW-Authenticate", challenge(refusal))
	}
	if errors.Is(err, service.ErrOverload) {
		w.Header().Set("Retry-After", retryOverload)
	}
	p.answer(w, problem.Status, wire.TypeProblem, problem)
}

// logError logs an error that an operator should know of. Neither a token nor the address
// that a request came from is logged: either may be a feature.
func (p *responder) logError(w http.ResponseWriter, r *http.Request, status int, err error) {
	refusal, refused := errors.AsType[*service.Refusal](err)
	switch {
	case refused:
		p.refusals.Do(refusal.Reason.String(), func(suppressed int64) {
			p.logOf(w, r).Warn("a request was refused", "reason", refusal.Reason.String(), "class", refusal.Class.String(),
				"client", refusal.Client, "method", methodOf(r), "suppressed", suppressed)
		})
	case r.Context().Err() != nil: // the client has left
	case status == http.StatusInternalServerError:
		p.logOf(w, r).Error("request failed", "method", methodOf(r), "error", err)
	case errors.Is(err, service.ErrDraining): // its beginning is logged
	case status == http.StatusServiceUnavailable:
		p.failures.Do(sparse.CauseOf(err), func(suppressed int64) {
			p.logOf(w, r).Warn("store failed", "method", methodOf(r), "error", err, "suppressed", suppressed)
		})
	}
}

// panicked answers a request whose action panicked. An answer that has begun is
// broken off, so that no client takes it for a whole one.
func (p *responder) panicked(x *exchange, fault any) {
	if fault == http.ErrAbortHandler {
		panic(fault)
	}
	r, stack := x.request, stackOf()
	p.failures.Do("panic", func(suppressed int64) {
		p.logOf(x, r).Error("a request panicked", "method", methodOf(r), "panic", faultOf(fault), "stack", stack, "suppressed", suppressed)
	})
	if x.status != 0 {
		panic(http.ErrAbortHandler)
	}
	id := requestID(x, r)
	clear(x.Header()) // of the answer that it would have been
	x.Header()[headerRequestID] = []string{id}
	p.answer(x, http.StatusInternalServerError, wire.TypeProblem, problemOf(errPanic, r.Method))
}
