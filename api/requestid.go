package api

import (
	"crypto/rand"
	"net/http"
)

// headerRequestID is the header by which a request is named, in canonical form: the
// client's name for it, or one that is made where it is needed. The answer's header holds it once it is known.
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
