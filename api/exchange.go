package api

import (
	"cmp"
	"io"
	"net/http"

	"github.com/counterd/counterd/api/connections"
	"github.com/counterd/counterd/service"
)

// exchange is a request and the answer to it.
type exchange struct {
	http.ResponseWriter
	request   *http.Request
	body      io.ReadCloser           // at most maxBody of the request's
	conn      *connections.Connection // admitted at the body's end; nil: there is none to admit
	admission service.Admission
	info      *requestInfo // nil: neither the access log nor a trace wants it
	status    int          // of the answer; 0: it has not begun
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
	x.info.wrote(n)
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
