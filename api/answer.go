package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/hierarchy"
)

// action answers a request, or returns why it does not.
type action func(http.ResponseWriter, *http.Request) error

// endpoint does what a request asks for and returns the body of the answer: nil
// for none.
type endpoint func(*http.Request) (any, error)

// served is an action with the class of its route.
type served struct {
	h     *handler
	class class
	do    action
}

// serve makes a handler of an action, for those whose token is good for the class.
func (h *handler) serve(of class, do action) http.Handler { return &served{h, of, do} }

func (s *served) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := s.h
	// Actions decode after they have found what is asked of them; the bound
	// holds from here on.
	out := &exchange{ResponseWriter: w, room: &h.room, body: http.MaxBytesReader(w, r.Body, maxBody)}
	r.Body = heldBody{out}
	if h.Draining != nil && h.Draining() {
		// So that who has a connection here goes elsewhere before it is cut.
		w.Header()["Connection"] = []string{"close"}
	}
	nameAnswer(out, r)
	if h.OnRequest != nil {
		began := time.Now()
		defer func() { h.OnRequest(routeOf(r), methodOf(r), out.status(), time.Since(began)) }()
	}
	if !h.watched() {
		s.act(out, r)
		return
	}
	traced := h.watch(out, r)
	defer h.tell(out, traced)
	s.act(out, traced)
}

// act does the action for those who are let in, and answers for what is not done.
func (s *served) act(out *exchange, r *http.Request) {
	h := s.h
	defer func() {
		out.over()
		if fault := recover(); fault != nil {
			h.panicked(out, r, fault)
		}
	}()
	if err := s.admitted(out, r); err != nil {
		h.answerError(out, r, err)
	}
}

// admitted does the action, if the request is let in. Of those that are, as many are done
// at a time as there may be. What anyone may ask is not among them: a busy process is not
// to be restarted by who probes it, and nobody without a token takes a client's place.
func (s *served) admitted(out *exchange, r *http.Request) (err error) {
	h := s.h
	if err := h.checkOrigin(r); err != nil {
		return err
	}
	if s.class == forAnyone {
		return s.do(out, r)
	}
	if out.client, err = h.admit(s.class, out, r); err != nil {
		return err
	}
	atATime := h.requests.Add(1)
	defer h.requests.Add(-1)
	if h.MaxRequests > 0 && atATime > int64(h.MaxRequests) {
		return hierarchy.ErrOverload
	}
	if err := out.hold(headerBytes(r)); err != nil {
		return err
	}
	// Without tokens anyone is let in: a body that never comes proves nothing.
	if c := connectionOf(r); h.Tokens != nil || r.ContentLength == 0 || r.ProtoMajor == 2 {
		c.letIn()
	} else {
		out.conn = c
		defer c.letIn()
	}
	return s.do(out, r)
}

// panicked answers a request whose action panicked. An answer that has begun is
// broken off, so that nobody takes it for a whole one.
func (h *handler) panicked(w *exchange, r *http.Request, fault any) {
	if fault == http.ErrAbortHandler {
		panic(fault)
	}
	stack := stackOf()
	h.failures.Do("panic", func(suppressed int64) {
		h.logOf(w, r).Error("a request panicked", "method", methodOf(r), "panic", faultOf(fault), "stack", stack, "suppressed", suppressed)
	})
	w.seen.broke()
	if w.begun {
		panic(http.ErrAbortHandler)
	}
	id := requestID(w, r)
	clear(w.Header()) // of the answer that it would have been
	w.Header()[headerRequestID] = []string{id}
	h.answer(w, http.StatusInternalServerError, wire.TypeProblem, problemOf(errPanic, r.Method))
}

// reply makes an action of an endpoint.
func (h *handler) reply(e endpoint) action {
	return func(w http.ResponseWriter, r *http.Request) error {
		body, err := e(r)
		switch {
		case err != nil:
			return err
		case body == nil:
			w.WriteHeader(http.StatusNoContent)
		default:
			h.answer(w, http.StatusOK, wire.TypeJSON, body)
		}
		return nil
	}
}

// field is a header field. Its name is in canonical form.
type field struct{ name, value string }

// setFields sets header fields that have a value. The values share one array, in
// which nobody who adds a value to one of them reaches another.
func setFields(header http.Header, fields ...field) {
	values := make([]string, len(fields))
	for i, f := range fields {
		if f.value != "" {
			values[i] = f.value
			header[f.name] = values[i : i+1 : i+1]
		}
	}
}

// counted is the length up to which net/http finds out itself how long a body is. A
// longer one it would send in chunks.
const counted = 2 << 10

// answer writes a body.
func (h *handler) answer(w http.ResponseWriter, status int, mediaType string, body any) {
	buffer := newBuffer()
	defer buffer.free()
	if err := buffer.encode(body); err != nil {
		// Only a mistake in this package leads here.
		h.Log.Error("an answer cannot be encoded", "error", err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	buffer.text = append(buffer.text, '\n')
	setFields(w.Header(), field{"Content-Type", mediaType}, field{"Cache-Control", "no-store"}, field{"X-Content-Type-Options", "nosniff"})
	if len(buffer.text) > counted {
		w.Header().Set("Content-Length", strconv.Itoa(len(buffer.text)))
	}
	w.WriteHeader(status)
	// A client that has left is the only one that misses this. Nobody keeps what they
	// are given to write.
	_, _ = w.Write(buffer.text)
}
