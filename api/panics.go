package api

import (
	"net/http"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/internal/panics"
)

// panicked answers a request whose action panicked. An answer that has begun is
// broken off, so that no client takes it for a whole one.
func (p *responder) panicked(x *exchange, fault any) {
	if fault == http.ErrAbortHandler {
		panic(fault)
	}
	r, stack := x.request, panics.Stack()
	p.lines.Do("panic", func(suppressed int64) {
		p.logOf(x, r).Error("a request panicked", "method", methodOf(r), "panic", panics.Fault(fault), "stack", stack, "suppressed", suppressed)
	})
	if x.status != 0 {
		panic(http.ErrAbortHandler)
	}
	id := requestID(x, r)
	clear(x.Header()) // of the answer that it would have been
	x.Header()[headerRequestID] = []string{id}
	p.answer(x, http.StatusInternalServerError, wire.TypeProblem, problemOf(errPanic, r.Method))
}
