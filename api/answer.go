package api

import (
	"net/http"

	"github.com/go-json-experiment/json"

	"github.com/counterd/counterd/api/wire"
)

// endpoint does what a request asks for and returns the body of the answer: nil
// for none.
type endpoint func(*http.Request) (any, error)

// serve makes a handler of an endpoint.
func (h *handler) serve(e endpoint) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Endpoints decode after they have found what is asked of them; the bound
		// holds from here on.
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		body, err := e(r)
		switch {
		case err != nil:
			h.answerError(w, r, err)
		case body == nil:
			w.WriteHeader(http.StatusNoContent)
		default:
			h.answer(w, http.StatusOK, wire.TypeJSON, body)
		}
	})
}

// answer writes a body.
func (h *handler) answer(w http.ResponseWriter, status int, mediaType string, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		// Only a mistake in this package leads here.
		h.Log.Error("an answer cannot be encoded", "error", err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("Content-Type", mediaType)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	// A client that has left is the only one that misses this.
	_, _ = w.Write(append(data, '\n'))
}
