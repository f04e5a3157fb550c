package api

import (
	"cmp"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/counterd/counterd/hierarchy"
)

const (
	// maxLarge bounds what all requests together hold of large bodies and answers, in
	// bytes of their text. A slow client holds its own for as long as it is waited for.
	maxLarge = 64 << 20
	// small is how much of it each request may hold besides: a hit with all the features
	// that there may be.
	small = 20 << 10
	// resultBytes and bucketBytes are about what a batch's result, with four limits, and
	// a bucket of a history take in an answer.
	resultBytes = 1 << 10
	bucketBytes = 64
)

// room is what large requests have to share.
type room struct{ taken atomic.Int64 }

// take takes so many bytes, or none where there are not as many.
func (r *room) take(bytes int64) error {
	if r.taken.Add(bytes) > maxLarge {
		r.taken.Add(-bytes)
		return hierarchy.ErrOverload
	}
	return nil
}

// exchange is a request's body and the answer to it, and the room that the two take.
type exchange struct {
	http.ResponseWriter
	begun  bool        // whether an answer has
	code   int         // of the answer, once it has begun; 0 before that
	seen   *seen       // what else is noted of it; nil where no hook asks
	client string      // the name of the request's token; empty: none was wanted
	conn   *connection // the body's end has it let in; nil: there is nothing to do

	body  io.ReadCloser
	room  *room
	held  int64 // bytes of the headers, of the body that were read, and of the answer
	taken int64 // of the room
}

// hold takes room for so many more bytes, if they are more than small.
func (e *exchange) hold(bytes int64) error {
	e.held += bytes
	missing := e.held - small - e.taken
	if missing <= 0 {
		return nil
	}
	if err := e.room.take(missing); err != nil {
		return err
	}
	e.taken += missing
	return nil
}

// over gives the room back.
func (e *exchange) over() { e.room.taken.Add(-e.taken) }

// holdAnswer takes room for an answer of so many bytes.
func holdAnswer(r *http.Request, bytes int) error {
	if body, ok := r.Body.(heldBody); ok {
		return body.hold(int64(bytes))
	}
	return nil
}

// heldBody is the body of an exchange.
type heldBody struct{ *exchange }

func (b heldBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if err == io.EOF {
		b.conn.letIn()
	}
	if err := b.hold(int64(n)); err != nil {
		return 0, err
	}
	return n, err
}

func (b heldBody) Close() error { return b.body.Close() }

func (e *exchange) WriteHeader(status int) {
	e.begun = true
	if e.code == 0 && status >= http.StatusOK {
		e.code = status
	}
	e.ResponseWriter.WriteHeader(status)
}

// status returns the status of the answer, which is over.
func (e *exchange) status() int { return cmp.Or(e.code, http.StatusOK) }

func (e *exchange) Write(p []byte) (int, error) {
	e.begun = true
	n, err := e.ResponseWriter.Write(p)
	e.seen.wrote(n)
	return n, err
}

// Unwrap is for http.ResponseController.
func (e *exchange) Unwrap() http.ResponseWriter { return e.ResponseWriter }
