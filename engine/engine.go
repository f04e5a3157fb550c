package engine

import (
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/store"
)

// Base is what the engines of a limiter share.
type Base struct {
	Store store.Store
	Clock func() time.Time // nil: time.Now
	// Grace is the allowance for clocks that differ and round trips that are late.
	Grace time.Duration
	// Changes counts what this process has changed of the counters.
	Changes *Changes
}

// Engine keeps counters in one layout of items. It is safe for concurrent use.
type Engine interface {
	// Base returns what it shares with the other engines of a limiter.
	Base() Base
	// Keeps reports whether it keeps the counters of limits with that algorithm.
	Keeps(algorithm string) bool
	// Begin returns a session on the counter with that ID.
	Begin(counter events.Counter, id string, moment Moment) Session
}

// Moment is when a batch of hits is decided.
type Moment struct {
	Now   time.Time
	Stamp int64     // the Unix second of its hits, no earlier than that of a batch before
	First time.Time // when its hits were tried first; the zero time: they were not
	Check bool      // nothing is added: it is a check
}

// Session decides the hits of one batch on one counter. Its owner adds the limits, and then
// starts one step at a time: Look, Add, WantFinal, Search. In each step it makes the round trips
// that Next returns, one after the other, until there is none. It is not safe for concurrent use.
type Session interface {
	// Limit has the session keep what a limit counts, whose number is how many were there before.
	// A window never holds more than the ceiling by hits that are admitted.
	Limit(limit events.Limit, ceiling int64)
	// Look starts a step that adds nothing and finds exact counts.
	Look()
	// Add starts a step that adds the cost, and counts what was there before. The counts are as
	// exact as hits of that cost need, of which up to most may be weighed.
	Add(cost, most int64)
	// Restart has the session go on with another store, which knows nothing of the steps before.
	Restart()
	// Next returns the step's next round trip; it begins no earlier than now. nil: the step has
	// ended.
	Next(now time.Time) *store.Op
	// Absorb takes in what came of the round trip. With an error, which wraps ErrStore, the step
	// has ended, and the session knows no more than before.
	Absorb() error

	// Standing returns whether the limit has room for a hit of that cost, behind hits of the batch
	// that cost ahead. What the batch added does not count otherwise.
	Standing(limit int, ahead, cost int64) Standing
	// Span returns what the limit counts.
	Span(limit int) Span

	// WantFinal has the next round trip read what Final needs.
	WantFinal(limit int)
	// Final returns what of the limit's count no rollback can take away any more, at the least.
	Final(limit int) int64

	// Stay says how much of the added cost stays, as of now.
	Stay(cost int64)
	// Follow makes the op one that follows what was added, where the receipt says that it was: of
	// kind Subtract it rolls back what does not stay, of kind Hint it tells the store what does.
	Follow(op *store.Op, kind store.Kind, receipt store.Receipt)

	// Search starts a step that finds when the limit has room for a hit of that cost, behind
	// others of the batch that cost ahead, if nothing else comes. It returns the number of the
	// search; ok is false if the limit has room now. One step can have several searches.
	Search(limit int, ahead, cost int64) (search int, ok bool)
	// Wait returns what the search has found so far, no earlier than the truth.
	Wait(search int) Wait

	// End gives the session back. It must not be used any more.
	End()
}

// Standing is what a limit answers to a hit.
type Standing struct {
	Outcome Outcome // Fits or Full
	Count   int64   // what the window holds without the hit
	Exact   bool    // that is exact; else it is no less
}

// Span is what a limit counts.
type Span struct {
	First int64 // the first Unix second of the window
	// Order tells the orders of hits apart: limits of one order count the same hits ahead of a
	// hit.
	Order int
}

// Outcome is how one limit answers one hit.
type Outcome uint8

const (
	Fits       Outcome = iota // the window has room for the hit's cost
	Full                      // it has none
	FullForNow                // it has none, and transient adds may be the reason
	Unknown                   // no store answered
)

// OutcomeOf weighs the cost of a hit against what the limit's window holds before it.
func OutcomeOf(held, cost, ceiling int64) Outcome {
	if held+cost <= ceiling {
		return Fits
	}
	return Full
}

// Wait is a number of whole seconds to wait, or Never.
type Wait int64

// Never is the wait for what can never be.
const Never Wait = -1

// Longer returns the longer of two waits. None is longer than Never.
func (w Wait) Longer(other Wait) Wait {
	if w == Never || other == Never {
		return Never
	}
	return max(w, other)
}

// CeilSeconds returns the duration in whole seconds, rounded up.
func CeilSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
