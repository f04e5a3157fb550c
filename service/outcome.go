package service

import (
	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/limiter"
)

// Outcome is a decision in one word.
type Outcome uint8

// The outcomes.
const (
	Allowed     Outcome = iota
	Denied              // a limit denies
	Unavailable         // no limit denies, but the store did not answer, and a rule refuses hits then
)

var outcomeNames = [...]string{Allowed: "allowed", Denied: "denied", Unavailable: "unavailable"}

// String returns allowed, denied or unavailable.
func (o Outcome) String() string { return outcomeNames[o] }

// OutcomeOf returns the outcome of a decision.
func OutcomeOf(d *limiter.Decision) Outcome {
	switch {
	case d.Allowed:
		return Allowed
	case d.Unavailable:
		return Unavailable
	}
	return Denied
}

// Unanswered reports whether neither the store nor this process's own counters could say
// how much of the limit is used.
func Unanswered(limit *limiter.LimitState) bool { return limit.Failed && limit.Unknown }

// Denies reports whether the limit is a reason to deny the hit. A hit that never fits is
// denied even where the store does not answer.
func Denies(limit *limiter.LimitState) bool {
	return !limit.Allowed && !limit.Shadow && (!Unanswered(limit) || limit.Reset == engine.Never)
}
