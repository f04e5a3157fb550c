package events

import (
	"math"
	"time"
)

// Never means that waiting does not help: the cost of the hit is above the limit, or the feature is on a deny list. Do not
// add it to a time, which overflows.
const Never time.Duration = math.MaxInt64

// Hit is an event to decide in a batch.
type Hit struct {
	// Event is the name of an event of the rules.
	Event string
	// Features are the features that do the event.
	Features Features
	// Cost is 1 to 1,000,000. Zero means 1.
	Cost int64
	// Reserve is the time for which the cost can be settled: whole seconds, at most 24 hours. If zero, it cannot be.
	Reserve time.Duration
}

// Decision is the outcome of a hit or a check.
type Decision struct {
	// Allowed reports whether the hit is admitted.
	Allowed bool
	// Unavailable reports whether the hit is refused only because the store did not answer in time and a rule has
	// on_error: deny. If a limit denies the hit, Unavailable is false.
	Unavailable bool
	// At is the UTC second of the decision.
	At time.Time
	// RetryAfter is the time until all limits have room for the hit, if no other hits come. Zero means now. If a limit
	// never has room, RetryAfter is Never. It is in whole seconds for limits that are kept in buckets, such as
	// sliding-window, and in milliseconds for all others.
	RetryAfter time.Duration
	// MayFitAfter is the earliest time at which an open reservation or lease could end or be given back, if the limits
	// then have room for the hit, in whole seconds, at least one. RetryAfter does not count on that. It is zero if it
	// would not be less than RetryAfter.
	MayFitAfter time.Duration
	// Wait is the time that an admitted hit waits for its turn if a rule has a queue, in milliseconds. Zero means that
	// it does not wait. A middleware waits before it calls the next handler.
	Wait time.Duration
	// Limits are the states of the limits that apply, in the order of the rules. Callers must not change them.
	Limits []LimitState
	// Reservation names the reserved cost, the leases and the turn of an admitted hit, for Settle, Release and Renew,
	// also in another process. If empty, there is nothing to settle.
	Reservation string
}

// LimitState is the state of one limit after a decision.
type LimitState struct {
	// Name is the name of the limit.
	Name string
	// Series is the name of the limit in metrics. If empty, it is Name.
	Series string
	// Feature is the feature of the counter, such as ip:192.0.2.1. The zero Feature is the event as a whole.
	Feature Feature
	// Limit is the cost that the limit admits per Window.
	Limit int64
	// Window is the length of the window. For a calendar window it is the length of the hour, day, week or
	// month that contains the hit.
	Window time.Duration
	// WindowName is hour, day, week or month for a calendar window, and otherwise empty.
	WindowName string
	// Algorithm is the algorithm as the rules name it. If empty, it is DefaultAlgorithm.
	Algorithm string
	// Burst is the capacity of a token bucket, or the queue of a leaky bucket plus one. If zero, the limit counts in
	// windows.
	Burst int64
	// Count is the cost in the window, or the cost taken from a bucket. It includes the hit if it was counted.
	Count int64
	// Exact reports whether Count is exact. If false, Count is an upper bound of the counts that the store has kept.
	Exact bool
	// Unknown reports that no counter was read: the hit is on a deny list, or the store did not answer. Count and
	// Remaining are then zero.
	Unknown bool
	// Remaining is Limit, or Burst, minus Count, and at least zero.
	Remaining int64
	// Reset is the time until this limit has room for the hit, if no other hits come. Zero means now. If it never has
	// room, Reset is Never.
	Reset time.Duration
	// Allowed reports whether this limit admits the hit.
	Allowed bool
	// Listing is the list of the rule that the hit is on.
	Listing Listing
	// Overridden reports whether a temporary override set Listing or Limit.
	Overridden bool
	// Shadow reports whether the limit is in shadow: its denials are reported, not enforced.
	Shadow bool
	// Over reports whether the limit admits the hit although Count is above the limit, because of its throttle or an
	// allow list.
	Over bool
	// Incomplete reports whether the counter has been kept for less than a window, or the store lost a part of it. The
	// limit may then admit too much.
	Incomplete bool
	// Unreserved reports whether the counter holds no reservation or lease for an admitted hit that asked for one,
	// because the store did not answer or a log has no room for it. Settle does not change the cost there.
	Unreserved bool
	// Failed reports whether the store did not answer in time. The limit then used OnError.
	Failed bool
	// OnError is the rule's decision without a store. If it is OnErrorLocal, the state is of the counters of this
	// process. It has no meaning unless Failed is set.
	OnError OnError
}

// Vetoes reports whether the limit denies the hit, and is not in shadow.
func (s *LimitState) Vetoes() bool { return !s.Allowed && !s.Shadow }

// Most returns the highest cost that the limit admits at once: Burst, or Limit if Burst is zero.
func (s *LimitState) Most() int64 { return Limit{N: s.Limit, Burst: s.Burst}.Most() }
