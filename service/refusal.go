package service

import (
	"fmt"
	"sync/atomic"
)

// Reason is why a token does not admit a request.
type Reason uint8

// The reasons.
const (
	TokenMissing   Reason = iota // the request has no token
	TokenUnknown                 // the token is not among those in force
	TokenForbidden               // the token is not good for the request's class
	reasons        = iota
)

var reasonNames = [reasons]string{TokenMissing: "missing", TokenUnknown: "unknown", TokenForbidden: "forbidden"}

// String returns missing, unknown or forbidden.
func (r Reason) String() string { return reasonNames[r] }

// Refusal is the error of a request that its token does not admit. It wraps ErrUnauthorized
// or ErrForbidden.
type Refusal struct {
	Class  Class // of the request
	Reason Reason
	Client string // the name of the token; empty: it is not known
}

func (e *Refusal) Error() string { return fmt.Sprintf("%v (%s, %s)", e.Unwrap(), e.Class, e.Reason) }

func (e *Refusal) Unwrap() error {
	if e.Reason == TokenForbidden {
		return ErrForbidden
	}
	return ErrUnauthorized
}

// Refusals counts the requests that their tokens did not admit. The zero Refusals is ready,
// and several gates may share it.
type Refusals struct {
	counts [ClassOperate + 1][reasons]atomic.Int64
}

// Refused is how many requests of a class were refused for a reason.
type Refused struct {
	Class  Class
	Reason Reason
	N      int64
}

// All returns the counts of each class that needs a token and of each reason, also the zeros.
func (r *Refusals) All() []Refused {
	var all []Refused
	for class := ClassDecide; class <= ClassOperate; class++ {
		for reason := range Reason(reasons) {
			all = append(all, Refused{class, reason, r.counts[class][reason].Load()})
		}
	}
	return all
}

func (r *Refusals) add(e *Refusal) {
	if r != nil {
		r.counts[e.Class][e.Reason].Add(1)
	}
}
