package api

import (
	"fmt"
	"net/http"
	"regexp"
	"runtime"
	"strings"

	"github.com/counterd/counterd/api/wire"
)

// panicked answers a request whose action panicked. An answer that has begun is
// broken off, so that no client takes it for a whole one.
func (p *responder) panicked(x *exchange, fault any) {
	if fault == http.ErrAbortHandler {
		panic(fault)
	}
	r, stack := x.request, stackOf()
	p.lines.Do("panic", func(suppressed int64) {
		p.logOf(x, r).Error("a request panicked", "method", methodOf(r), "panic", faultOf(fault), "stack", stack, "suppressed", suppressed)
	})
	if x.status != 0 {
		panic(http.ErrAbortHandler)
	}
	id := requestID(x, r)
	clear(x.Header()) // of the answer that it would have been
	x.Header()[headerRequestID] = []string{id}
	p.answer(x, http.StatusInternalServerError, wire.TypeProblem, problemOf(errPanic, r.Method))
}

// maxFrames bounds the stack of a panic in the log.
const maxFrames = 64

// faultOf says what was panicked with, as far as it cannot be a value of a request: in
// the runtime's own words, else by its type.
func faultOf(fault any) string {
	if err, ok := fault.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("a %T", fault)
}

// stackOf returns the functions and lines that led here. runtime.Stack has the arguments
// too: an address is a few digits of those.
func stackOf() string {
	pcs := make([]uintptr, maxFrames)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	var b strings.Builder
	for {
		frame, more := frames.Next()
		fmt.Fprintf(&b, "%s %s:%d\n", frame.Function, frame.File, frame.Line)
		if !more {
			return b.String()
		}
	}
}

// framed matches a line of runtime.Stack that says where a function is.
var framed = regexp.MustCompile(`(?m)^\t(\S+\.(?:go|s):\d+)(?: \+0x[0-9a-f]+)?$`)

// framesIn returns the places in a stack as runtime.Stack writes it.
func framesIn(text string) string {
	// The value of the panic comes before it, of any length and in any words.
	if at := strings.LastIndex(text, "\ngoroutine "); at >= 0 {
		text = text[at:]
	}
	var b strings.Builder
	for _, match := range framed.FindAllStringSubmatch(text, maxFrames) {
		b.WriteString(match[1] + "\n")
	}
	return b.String()
}
