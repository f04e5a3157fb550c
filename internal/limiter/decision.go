package limiter

import (
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// Result is the outcome of a hit or a check: a decision, or an error.
type Result struct {
	Decision events.Decision // without a Reservation: package service makes it of Reserved
	// Reserved is what an admitted hit that reserves, takes leases, or waits, added to each counter that keeps it to be
	// settled.
	Reserved []engine.Reserved
	// Parts has the part of the hit that each of the decision's limits is of. It is nil if the hit has no parts.
	Parts []int
	Err   error
}
