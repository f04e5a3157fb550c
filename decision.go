package counterd

import (
	"time"

	"github.com/counterd/counterd/events"
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
type Decision = events.Decision

// LimitState is the state of one limit after a decision.
type LimitState = events.LimitState
