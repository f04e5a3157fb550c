package service

import (
	"errors"
	"fmt"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
)

var (
	// ErrUnauthorized is what a Refusal wraps whose request has no token, or an unknown one.
	ErrUnauthorized = errors.New("service: no token, or an unknown one")
	// ErrForbidden is what a Refusal wraps whose request has a token of other classes.
	ErrForbidden = errors.New("service: the token may not do this")
	// ErrUnknownDomain is the ErrUnknownEvent of a domain that Envoy's configuration does not have.
	ErrUnknownDomain = fmt.Errorf("%w: a domain of Envoy's configuration", events.ErrUnknownEvent)
	// ErrOverload refuses a request because of what others ask. Nothing was done for it.
	ErrOverload = engine.ErrOverload
	// ErrNotReset is what the error of a Reset wraps that the store did not complete: the
	// counter may be forgotten in part.
	ErrNotReset = errors.New("service: the counter was not reset")
	// ErrUnready says that no server of the store answers.
	ErrUnready = errors.New("service: no server of the store answers")
	// ErrClosed is the error of a call of a Service that is closed. It is counterd.ErrClosed.
	ErrClosed = errors.New("counterd: the limiter is closed")
	// ErrDraining says that the process is about to end.
	ErrDraining = errors.New("service: the process is about to end")
)
