// Package exchanges records requests with their answers, to be validated against api/openapi.yaml by a module
// that has a library for that: see internal/conformance.
package exchanges

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
)

// Variable names the file into which the tests of package api write their exchanges, as a stream of gob.
// Without it they record none.
const Variable = "COUNTERD_EXCHANGES"

// Exchange is a request and its answer.
type Exchange struct {
	Test                    string // that made the request
	Method                  string
	Path, RawPath, RawQuery string
	Host                    string
	Header                  http.Header
	Body                    []byte // the part that the handler read
	BodyIsWhole             bool
	Status                  int
	AnswerHeader            http.Header
	Answer                  []byte
}

// Request returns the request with the recorded part of its body.
func (e *Exchange) Request() *http.Request {
	return &http.Request{
		Method: e.Method, URL: &url.URL{Path: e.Path, RawPath: e.RawPath, RawQuery: e.RawQuery}, Host: e.Host,
		Header: e.Header.Clone(), Body: io.NopCloser(bytes.NewReader(e.Body)), ContentLength: int64(len(e.Body)),
	}
}

// Recorder calls Record with each exchange of its handler.
type Recorder struct {
	http.Handler
	Record func(Exchange)
}

func (rec Recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, direct := w.(*httptest.ResponseRecorder)
	if !direct && (r.ContentLength < 0 || r.ContentLength > 1<<20) {
		rec.Handler.ServeHTTP(w, r) // a body that is too large closes the connection only if the writer is the server's own
		return
	}
	request := r.Clone(context.WithoutCancel(r.Context())) // the handler may change the request
	body := &bodyReader{ReadCloser: r.Body}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = body
	}
	answer := &answerWriter{ResponseWriter: w}
	rec.Handler.ServeHTTP(answer, r)
	if answer.status == 0 {
		answer.status, answer.header = http.StatusOK, answer.Header().Clone()
	}
	rec.Record(Exchange{
		Test: testName(), Method: request.Method,
		Path: request.URL.Path, RawPath: request.URL.RawPath, RawQuery: request.URL.RawQuery, Host: request.Host,
		Header: request.Header, Body: body.text.Bytes(), BodyIsWhole: body.eof,
		Status: answer.status, AnswerHeader: answer.header, Answer: answer.text.Bytes(),
	})
}

// bodyReader keeps what the handler reads of a body.
type bodyReader struct {
	io.ReadCloser
	text bytes.Buffer
	eof  bool
}

func (b *bodyReader) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.text.Write(p[:n])
	b.eof = b.eof || err == io.EOF
	return n, err
}

// answerWriter keeps what the handler writes.
type answerWriter struct {
	http.ResponseWriter
	status int
	header http.Header // when the answer began
	text   bytes.Buffer
}

func (a *answerWriter) WriteHeader(status int) {
	if a.status == 0 {
		a.status, a.header = status, a.Header().Clone()
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answerWriter) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status, a.header = http.StatusOK, a.Header().Clone()
	}
	a.text.Write(p)
	return a.ResponseWriter.Write(p)
}

func (a *answerWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// testName returns the name of the test that calls it.
func testName() string {
	callers := make([]uintptr, 100)
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers)])
	for frame, more := frames.Next(); more; frame, more = frames.Next() {
		if _, name, found := strings.Cut(frame.Function, "_test.Test"); found {
			return "Test" + name
		}
	}
	return "a server's goroutine"
}
