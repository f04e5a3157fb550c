package api

import (
	"errors"

	"github.com/counterd/counterd/internal/httpdecision"

	"net/http"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/internal/panics"
)

// panicked answers a request whose action panicked. An answer that has begun is
// broken off, so that no client takes it for a whole one.
func (h *handler) panicked(x *exchange, fault any) {
	if fault == http.ErrAbortHandler {
		panic(fault)
	}
	r, stack := x.request, panics.Stack()
	h.Lines.Do("panic", func(suppressed int64) {
		h.LogOf(x, r).Error("a request panicked", "method", httpdecision.MethodOf(r), "panic", panics.Fault(fault), "stack", stack, "suppressed", suppressed)
	})
	if x.status != 0 {
		panic(http.ErrAbortHandler)
	}
	id := httpdecision.RequestID(x, r)
	clear(x.Header()) // of the answer that it would have been
	x.Header()[httpdecision.HeaderRequestID] = []string{id}
	problem := httpdecision.ProblemOf(errPanic, r.Method)
	h.Answer(x, problem.Status, wire.TypeProblem, &problem)
}

// errPanic is the error of a request that panicked.
var errPanic = errors.New("api: panic")
