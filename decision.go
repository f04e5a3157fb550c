package counterd

import "github.com/counterd/counterd/events"

// Features are the actor of an event: a value for each kind, as in {"ip": "192.0.2.1"}. A value
// of kind ip is an address.
type Features = events.Features

// Never is the wait for room that never comes: the cost is above the limit, or a deny list has
// the feature.
const Never = events.Never

// Hit is an event to decide in a batch.
type Hit = events.Hit

// Result is the outcome of one hit of a batch: a decision, or an error.
type Result struct {
	Decision Decision
	Err      error
}

// Decision is the outcome of a hit or a check.
type Decision = events.Decision

// LimitState is the state of one limit after a decision.
type LimitState = events.LimitState
