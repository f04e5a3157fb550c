package api

import (
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/counterd/counterd/api/connections"
)

// errFields is the error of a request with more header fields than maxFields.
var errFields = errors.New("api: too many header fields")

// headerBytes returns about how much memory the text of a request's headers takes.
func headerBytes(r *http.Request) (bytes int64) {
	for name, values := range r.Header {
		bytes += int64(len(name))
		for _, value := range values {
			bytes += int64(len(value))
		}
	}
	return bytes + int64(len(r.RequestURI)+len(r.Host))
}

// tooManyFields reports whether a request has more header fields than it may.
func tooManyFields(r *http.Request) bool {
	fields := 0
	for _, values := range r.Header {
		fields += len(values)
	}
	return fields > maxFields
}

// strangerTimeout bounds how long a stranger may take for an answer.
const strangerTimeout = 5 * time.Second

// forget frees the headers of a request that came over a Listener and has been handled.
// net/http keeps the request for as long as its client takes to read the answer. A stranger
// has to be quick about that.
func forget(w http.ResponseWriter, r *http.Request) {
	c := connections.Of(r)
	if c == nil {
		return // the caller of the handler may still read the request
	}
	r.Header, r.URL, r.RequestURI, r.Host = http.Header{}, &url.URL{}, "", ""
	if c.IsStranger() {
		// Where the deadline cannot be set, that of the server holds.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(strangerTimeout))
	}
}
