package counterd

import (
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
)

// Features are the actor of an event: a value for each kind, as in {"ip": "192.0.2.1"}. A value
// of kind ip is an address.
type Features = events.Features

// Never is the wait for room that never comes: the cost is above the limit, or a deny list has
// the feature.
const Never = events.Never

// Hit is an event to decide in a batch.
type Hit struct {
	Event    string
	Features Features
	Cost     int64 // 1 to 1,000,000; 0: 1
	// Reserve is for how long the cost can be settled, whole seconds up to 24 h; 0: it cannot.
	Reserve time.Duration
}

// Result is the outcome of one hit of a batch: a decision, or an error.
type Result struct {
	Decision Decision
	Err      error
}

// Decision is the outcome of a hit or a check.
type Decision struct {
	Allowed bool
	// Unavailable is set if no limit denies the hit, but the store did not answer in time and
	// a rule has on_error: deny.
	Unavailable bool
	At          time.Time // the second in which it was decided, UTC
	// RetryAfter is how long it is until all limits have room, if nothing else comes; 0: now; or
	// Never. It is in whole seconds of limits that are kept in buckets, as sliding-window, in milliseconds of
	// all others.
	RetryAfter time.Duration
	// Wait is how long an allowed hit waits for its turn where a rule has a queue; 0: not at all. A
	// middleware has waited by then.
	Wait   time.Duration
	Limits []LimitState // of all rules that apply, in the order of the rules
	// Reservation names what was reserved, the leases that were taken, and the turn that the hit waits
	// for, for Settle, Release and Renew, also of another process; empty: there is nothing.
	Reservation string
}

// LimitState is the state of one limit after a decision.
type LimitState struct {
	Name      string
	Feature   string // of the counter, as in ip:192.0.2.1; empty: the event as a whole
	Limit     int64
	Window    time.Duration // of a calendar: of the unit that the hit is in
	Algorithm string        // as the rules name it; empty: a sliding window
	Count     int64         // in the window, or taken from a token bucket, with the cost of an admitted hit
	Remaining int64         // Limit, or Burst, less Count, not below 0
	Burst     int64         // of a token bucket, or one more than the queue of a leaky one; 0: it counts in a window
	Reset     time.Duration // until this limit has room; 0: now; or Never
	Allowed   bool          // whether this limit admits the hit
	Exact     bool          // false: Count is an upper bound
	Shadow    bool          // a denial is reported, not enforced
	Over      bool          // Count is above Limit, as the throttle or an allow list lets it be
	// Incomplete is set if the counter has not been kept for a whole window, or the store lost a
	// part of it: the limit may admit too much.
	Incomplete bool
	// Unreserved is set if an admitted hit that reserves, or takes a lease, has reserved nothing on the counter:
	// the store did not answer, or a log has no room for it. Settle leaves what it costs there.
	Unreserved bool
	// OnError is what the rule decided instead where the store did not answer in time: allow,
	// deny or local. Empty: the store answered.
	OnError string
}

func decisionOf(d limiter.Decision) Decision {
	decision := Decision{
		Allowed: d.Allowed, Unavailable: d.Unavailable, At: d.At, RetryAfter: d.RetryAfter, Wait: d.Wait,
		Limits: make([]LimitState, len(d.Limits)),
	}
	for i := range d.Limits {
		decision.Limits[i] = stateOf(&d.Limits[i])
	}
	return decision
}

func stateOf(l *limiter.LimitState) LimitState {
	state := LimitState{
		Name: l.Name, Feature: l.Feature.String(), Limit: l.N, Window: l.Window, Algorithm: l.Algorithm,
		Count: l.Count, Remaining: l.Remaining, Burst: l.Burst, Reset: l.Reset, Allowed: l.Allowed,
		Exact: l.Exact, Shadow: l.Shadow, Over: l.Over, Incomplete: l.Incomplete, Unreserved: l.Unreserved,
	}
	if l.Failed {
		state.OnError = l.OnError.String()
	}
	return state
}
