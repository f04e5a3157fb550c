package api

import (
	"cmp"
	"io"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/counterd/counterd/api/connections"
	"github.com/counterd/counterd/service"
)

// route is a way through the handler. Every request takes one: it is admitted, answered by the
// action, and reported.
type route struct {
	h      *handler
	class  service.Class
	action action
}

// action answers a request, or returns why it does not.
type action func(*exchange) error

// exchange is a request and the answer to it. The access log and the trace say of it what is
// here and nothing of the client's choice: the method and the route are the contract's, the event
// is one of the rules, and there is no feature.
type exchange struct {
	http.ResponseWriter
	request   *http.Request
	body      io.ReadCloser           // at most maxBody of the request's
	conn      *connections.Connection // admitted at the body's end; nil: there is none to admit
	admission service.Admission
	status    int   // of the answer; 0: it has not begun
	bytes     int64 // of the answer

	began   time.Time
	method  string // or Other
	route   string // its template, or Other
	event   string
	verdict string
	broken  bool       // it panicked
	span    trace.Span // nil: it is not traced
}

func (o *route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := o.h
	// The action decodes the body once it knows what is asked for: the bound holds from here on.
	x := &exchange{
		ResponseWriter: w, request: r, body: http.MaxBytesReader(w, r.Body, maxBody),
		began: time.Now(), method: methodOf(r), route: routeOf(r),
	}
	r.Body = requestBody{x}
	if h.Health.Drain() {
		// The client opens its next connection to another process, before this one is cut.
		w.Header()["Connection"] = []string{"close"}
	}
	if h.Tracer != nil {
		x.trace(h.Tracer)
	}
	if h.AccessLog || len(r.Header[headerRequestID]) > 0 {
		requestID(x, r)
	}
	defer h.report(x)
	defer func() {
		if fault := recover(); fault != nil {
			x.broken = true
			h.panicked(x, fault)
		}
	}()
	defer x.admission.Release()
	if err := o.act(x); err != nil {
		h.answerError(x, x.request, err)
	}
}

// act does the action for a request that is admitted. The connection is a client's at the latest
// when it is answered.
func (o *route) act(x *exchange) error {
	if err := o.admit(x); err != nil {
		return err
	}
	defer x.conn.Admit()
	return o.action(x)
}

// report tells the trace, the access log and the metrics of the request.
func (h *handler) report(x *exchange) {
	status, took := x.finalStatus(), time.Since(x.began)
	if x.span != nil {
		x.endSpan(status)
	}
	if h.AccessLog {
		h.logAccess(x, status, took)
	}
	if h.OnRequest != nil {
		h.OnRequest(x.route, x.method, status, took)
	}
}

func (h *handler) logAccess(x *exchange, status int, took time.Duration) {
	attrs := make([]slog.Attr, 0, 8)
	attrs = append(attrs, slog.String("method", x.method), slog.String("route", x.route))
	if x.event != "" {
		attrs = append(attrs, slog.String("event", x.event))
	}
	attrs = append(attrs, slog.Int("status", status))
	if x.verdict != "" {
		attrs = append(attrs, slog.String("verdict", x.verdict))
	}
	if client := x.admission.Client; client != "" {
		attrs = append(attrs, slog.String("client", client))
	}
	attrs = append(attrs, slog.Duration("duration", took), slog.Int64("bytes", x.bytes))
	h.logOf(x, x.request).LogAttrs(x.request.Context(), slog.LevelInfo, "request", attrs...)
}

// WriteHeader begins the answer.
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 && status >= http.StatusOK {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

func (x *exchange) Write(p []byte) (int, error) {
	x.status = x.finalStatus()
	n, err := x.ResponseWriter.Write(p)
	x.bytes += int64(n)
	return n, err
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// finalStatus returns the status of the answer. One that sets none has 200.
func (x *exchange) finalStatus() int { return cmp.Or(x.status, http.StatusOK) }

// requestBody is the body of an exchange. It holds memory for what is read, and its end
// admits the connection.
type requestBody struct{ *exchange }

func (b requestBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if err == io.EOF {
		b.conn.Admit()
	}
	if err := b.admission.Hold(int64(n)); err != nil {
		return 0, err
	}
	return n, err
}

func (b requestBody) Close() error { return b.body.Close() }
