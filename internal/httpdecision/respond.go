package httpdecision

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/sparse"
)

// Responder writes answers, and logs why they are not what was asked for: each cause at most
// once a second.
type Responder struct {
	Log     *slog.Logger
	Lines   sparse.Lines                   // by their causes
	TraceID func(context.Context) string   // if not nil, it returns the ID of a trace for the log
	Marshal func(body any) ([]byte, error) // of bodies that do not append themselves
}

// NewResponder returns a Responder. If log is nil, it logs to slog.Default.
func NewResponder(log *slog.Logger) *Responder {
	if log == nil {
		log = slog.Default()
	}
	return &Responder{Log: log}
}

// LogOf returns the log for a line about the request.
func (p *Responder) LogOf(w http.ResponseWriter, r *http.Request) *slog.Logger {
	log := p.Log.With("request_id", RequestID(w, r))
	if p.TraceID != nil {
		if id := p.TraceID(r.Context()); id != "" {
			log = log.With("trace_id", id)
		}
	}
	return log
}

// HeaderRequestID is the header by which a request is named, in canonical form: the client's name
// for it, or one that is made where it is needed. The answer has it once it is known.
const HeaderRequestID = "X-Request-Id"

// maxRequestID is how long a client's name for its request may be.
const maxRequestID = 64

// givenID returns the client's name for its request; "": it gives none that is one. The
// name goes into logs, so it is short and has no blanks, quotes or line ends.
func givenID(r *http.Request) string {
	values := r.Header[HeaderRequestID]
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

// RequestID returns the request's name, and has the answer say it.
func RequestID(w http.ResponseWriter, r *http.Request) string {
	id := w.Header().Get(HeaderRequestID)
	if id == "" {
		if id = givenID(r); id == "" {
			id = rand.Text()
		}
		w.Header()[HeaderRequestID] = []string{id}
	}
	return id
}

// SetHeaders sets the headers that state the limits of a decision.
func SetHeaders(header http.Header, rules *events.Rules, d *events.Decision) {
	var space [6]Field // all there are
	SetFields(header, Append(space[:0], rules, d)...)
}

// SetFields sets header fields that have a value. The values share one array, of which each
// field has its own place with no room behind it.
func SetFields(header http.Header, fields ...Field) {
	values := make([]string, len(fields))
	for i, f := range fields {
		if f.Value != "" {
			values[i] = f.Value
			header[f.Name] = values[i : i+1 : i+1]
		}
	}
}

// maxUncounted is the length up to which net/http sets the Content-Length itself. A longer
// body it would send in chunks.
const maxUncounted = 2 << 10

// Reply answers 200 with a body.
func (p *Responder) Reply(w http.ResponseWriter, body any) {
	p.Answer(w, http.StatusOK, wire.TypeJSON, body)
}

// Answer writes a body.
func (p *Responder) Answer(w http.ResponseWriter, status int, mediaType string, body any) {
	buffer := NewBuffer()
	defer buffer.Free()
	if bounded, ok := w.(answerBound); ok { // a large answer that grows would leave several times its length
		buffer.Text = slices.Grow(buffer.Text, int(bounded.HeldAnswer()))
	}
	if err := p.encode(buffer, body); err != nil {
		// Only a mistake in this package leads here.
		p.Log.Error("an answer cannot be encoded", "error", err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	buffer.Text = append(buffer.Text, '\n')
	if err := HoldAnswer(w, len(buffer.Text)); err != nil {
		problem := ProblemOf(errUnread, "")
		p.Answer(w, problem.Status, wire.TypeProblem, &problem)
		return
	}
	SetFields(w.Header(), Field{"Content-Type", mediaType}, Field{"Cache-Control", "no-store"}, Field{"X-Content-Type-Options", "nosniff"})
	if len(buffer.Text) > maxUncounted {
		w.Header().Set("Content-Length", strconv.Itoa(len(buffer.Text)))
	}
	w.WriteHeader(status)
	// Only a client that has left misses what is not written. No writer keeps its argument.
	_, _ = w.Write(buffer.Text)
}

// answerBound is a writer that bounds the memory of all answers until their clients have read them.
type answerBound interface {
	HoldAnswer(bytes int64) error
	HeldAnswer() int64 // bytes that HoldAnswer has taken
}

// HoldAnswer takes memory for an answer of that many bytes, if the writer is bounded. If it returns an error, the answer
// must not be written.
func HoldAnswer(w http.ResponseWriter, bytes int) error {
	if bounded, ok := w.(answerBound); ok && bytes > maxUncounted {
		return bounded.HoldAnswer(int64(bytes))
	}
	return nil
}

// errUnread is the error of an answer for which there is no memory.
var errUnread = &StatusError{
	Text: "api: no memory for an answer", Status: http.StatusServiceUnavailable,
	Detail: "Too many clients do not read their answers: there is no memory for this one. The request may have been counted.",
}

// retryOverload is after how many seconds a client may try again that is refused for what
// others ask.
const retryOverload = "1"

// AnswerError writes the problem document of an error. It has the request's name, by which
// the log can be searched for more.
func (p *Responder) AnswerError(w http.ResponseWriter, r *http.Request, err error) {
	problem := ProblemOf(err, r.Method)
	RequestID(w, r)
	p.LogError(w, r, problem.Status, err)
	if errors.Is(err, service.ErrOverload) {
		w.Header().Set("Retry-After", retryOverload)
	}
	if e, ok := errors.AsType[*engine.AheadError](err); ok {
		w.Header().Set("Retry-After", strconv.FormatInt(engine.CeilSeconds(e.After), 10))
	}
	p.Answer(w, problem.Status, wire.TypeProblem, &problem)
}

// LogError logs an error that an operator should know of. Neither a token nor the address
// that a request came from is logged: either may be a feature.
func (p *Responder) LogError(w http.ResponseWriter, r *http.Request, status int, err error) {
	refusal, refused := errors.AsType[*service.Refusal](err)
	switch {
	case refused && refusal.Reason == service.TokenMissing && isVisit(r):
	case refused:
		p.Lines.Do(refusal.Reason.String(), func(suppressed int64) {
			p.LogOf(w, r).Warn("a request was refused", "reason", refusal.Reason.String(), "class", refusal.Class.String(),
				"client", refusal.Client, "method", MethodOf(r), "suppressed", suppressed)
		})
	case r.Context().Err() != nil: // the client has left
	case status == http.StatusInternalServerError:
		p.LogOf(w, r).Error("request failed", "method", MethodOf(r), "error", err)
	case errors.Is(err, service.ErrDraining): // its beginning is logged
	case errors.Is(err, service.ErrClosed):
		p.Lines.Do("closed", func(suppressed int64) {
			p.LogOf(w, r).Warn("requests came after the limiter was closed, and were answered 503", "method", MethodOf(r), "suppressed", suppressed)
		})
	case status == http.StatusServiceUnavailable:
		p.Lines.Do(sparse.CauseOf(err), func(suppressed int64) {
			p.LogOf(w, r).Warn("store failed", "method", MethodOf(r), "error", err, "suppressed", suppressed)
		})
	}
}

// PagePath begins the paths of the page, for browsers.
const PagePath = "/ui"

// isVisit reports whether the request asks for the page: a browser sends a password only once it was asked for it.
func isVisit(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && strings.HasPrefix(r.URL.Path, PagePath)
}

// Buffer holds the text of a body while it is read or written, and that of another
// one afterwards.
type Buffer struct{ Text []byte }

var buffers = sync.Pool{New: func() any { return new(Buffer) }}

// maxKept bounds the buffers that are kept for the next: the text of a batch of a
// hundred hits fits, that of the largest does not.
const maxKept = 128 << 10

// NewBuffer returns an empty buffer.
func NewBuffer() *Buffer { return buffers.Get().(*Buffer) }

// Free gives the buffer to the next one. Its text is not used from then on.
func (b *Buffer) Free() {
	if cap(b.Text) <= maxKept {
		b.Text = b.Text[:0]
		buffers.Put(b)
	}
}

// appender is a body that appends itself, as Marshal would have it.
type appender interface {
	AppendTo([]byte) ([]byte, error)
}

// encode appends a body.
func (p *Responder) encode(b *Buffer, body any) (err error) {
	if itself, ok := body.(appender); ok {
		b.Text, err = itself.AppendTo(b.Text)
		return err
	}
	text, err := p.Marshal(body)
	b.Text = append(b.Text, text...)
	return err
}

// Fill reads the text, whole.
func (b *Buffer) Fill(r io.Reader) error {
	text := bytes.NewBuffer(b.Text)
	_, err := text.ReadFrom(r)
	b.Text = text.Bytes()
	return err
}

// Other is the method of requests with an unusual one.
const Other = "other"

// MethodOf returns the request's method, or Other where it is not a usual one.
func MethodOf(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return r.Method
	}
	return Other
}
