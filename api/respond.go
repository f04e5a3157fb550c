package api

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json"
	"go.opentelemetry.io/otel/trace"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/httpdecision"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/sparse"
)

// responder writes answers, and logs why they are not what was asked for: each cause at most
// once a second.
type responder struct {
	log   *slog.Logger
	lines sparse.Lines // by their causes
}

// newResponder returns a responder; nil: it logs to slog.Default.
func newResponder(log *slog.Logger) *responder {
	if log == nil {
		log = slog.Default()
	}
	return &responder{log: log}
}

// logOf returns the log for a line about the request.
func (p *responder) logOf(w http.ResponseWriter, r *http.Request) *slog.Logger {
	log := p.log.With("request_id", requestID(w, r))
	if span := trace.SpanContextFromContext(r.Context()); span.IsValid() {
		log = log.With("trace_id", span.TraceID().String())
	}
	return log
}

// headerRequestID is the header by which a request is named, in canonical form: the client's name
// for it, or one that is made where it is needed. The answer has it once it is known.
const headerRequestID = "X-Request-Id"

// maxRequestID is how long a client's name for its request may be.
const maxRequestID = 64

// givenID returns the client's name for its request; "": it gives none that is one. The
// name goes into logs, so it is short and has no blanks, quotes or line ends.
func givenID(r *http.Request) string {
	values := r.Header[headerRequestID]
	if len(values) != 1 || values[0] == "" || len(values[0]) > maxRequestID {
		return ""
	}
	for _, c := range []byte(values[0]) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && c != '.' && c != '_' && c != '-' {
			return ""
		}
	}
	return values[0]
}

// requestID returns the request's name, and has the answer say it.
func requestID(w http.ResponseWriter, r *http.Request) string {
	id := w.Header().Get(headerRequestID)
	if id == "" {
		if id = givenID(r); id == "" {
			id = rand.Text()
		}
		w.Header()[headerRequestID] = []string{id}
	}
	return id
}

// field is a header field. Its name is in canonical form.
type field struct{ name, value string }

// setRateLimitHeaders sets the headers that say the limits of a decision.
func setRateLimitHeaders(header http.Header, rules *events.Rules, d *limiter.Decision) {
	var space [6]httpdecision.Field // all there are
	var fields [len(space)]field
	n := 0
	for _, f := range httpdecision.Append(space[:0], rules, d) {
		fields[n] = field{f.Name, f.Value}
		n++
	}
	setFields(header, fields[:n]...)
}

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

// reply answers 200 with a body.
func (p *responder) reply(w http.ResponseWriter, body any) {
	p.answer(w, http.StatusOK, wire.TypeJSON, body)
}

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
		w.Header().Set("WWW-Authenticate", challenge(refusal, routeOf(r)))
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
		p.lines.Do(refusal.Reason.String(), func(suppressed int64) {
			p.logOf(w, r).Warn("a request was refused", "reason", refusal.Reason.String(), "class", refusal.Class.String(),
				"client", refusal.Client, "method", methodOf(r), "suppressed", suppressed)
		})
	case r.Context().Err() != nil: // the client has left
	case status == http.StatusInternalServerError:
		p.logOf(w, r).Error("request failed", "method", methodOf(r), "error", err)
	case errors.Is(err, service.ErrDraining): // its beginning is logged
	case status == http.StatusServiceUnavailable:
		p.lines.Do(sparse.CauseOf(err), func(suppressed int64) {
			p.logOf(w, r).Warn("store failed", "method", methodOf(r), "error", err, "suppressed", suppressed)
		})
	}
}

// buffer holds the text of a body while it is read or written, and that of another
// one afterwards.
type buffer struct{ text []byte }

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// maxKept bounds the buffers that are kept for the next: the text of a batch of a
// hundred hits fits, that of the largest does not.
const maxKept = 128 << 10

// newBuffer returns an empty buffer.
func newBuffer() *buffer { return buffers.Get().(*buffer) }

// free gives the buffer to the next one. Its text is not used from then on.
func (b *buffer) free() {
	if cap(b.text) <= maxKept {
		b.text = b.text[:0]
		buffers.Put(b)
	}
}

// appender is a body that appends itself, as json.Marshal would have it.
type appender interface {
	AppendTo([]byte) ([]byte, error)
}

// encode appends a body.
func (b *buffer) encode(body any) (err error) {
	if itself, ok := body.(appender); ok {
		b.text, err = itself.AppendTo(b.text)
		return err
	}
	text, err := json.Marshal(body)
	b.text = append(b.text, text...)
	return err
}

// readFrom reads the text, whole.
func (b *buffer) readFrom(r io.Reader) error {
	text := bytes.NewBuffer(b.text)
	_, err := text.ReadFrom(r)
	b.text = text.Bytes()
	return err
}
