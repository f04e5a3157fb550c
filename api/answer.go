package api

import (
	"net/http"
	"strconv"

	"github.com/counterd/counterd/api/wire"
)

// action answers a request, or returns why it does not.
type action func(http.ResponseWriter, *http.Request) error

// endpoint does what a request asks for and returns the body of the answer: nil
// for none.
type endpoint func(*http.Request) (any, error)

// serve makes a handler of an action.
func (h *handler) serve(do action) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Actions decode after they have found what is asked of them; the bound
		// holds from here on.
		out := &exchange{ResponseWriter: w, room: &h.room, body: http.MaxBytesReader(w, r.Body, maxBody)}
		r.Body = heldBody{out}
		defer func() {
			out.over()
			if fault := recover(); fault != nil {
				h.panicked(out, r, fault)
			}
		}()
		if err := do(out, r); err != nil {
			h.answerError(out, r, err)
		}
	})
}

// panicked answers a request whose action panicked. An answer that has begun is
// broken off, so that nobody takes it for a whole one.
func (h *handler) panicked(w *exchange, r *http.Request, fault any) {
	if fault == http.ErrAbortHandler {
		panic(fault)
	}
	stack := stackOf()
	h.failures.Do("panic", func(suppressed int64) {
		h.Log.Error("a request panicked", "method", methodOf(r), "panic", faultOf(fault), "stack", stack, "suppressed", suppressed)
	})
	if w.begun {
		panic(http.ErrAbortHandler)
	}
	clear(w.Header()) // of the answer that it would have been
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
