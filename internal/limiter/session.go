package limiter

import (
	"context"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// An Engine stores counters in a layout of items of its own, such as buckets or a log, and makes the round trips to its
// store. It is safe for concurrent use.
type Engine interface {
	// Base returns what the engine shares with the other engines of a limiter.
	Base() engine.Base
	// Keeps reports whether the engine keeps the counters of limits with the algorithm.
	Keeps(algorithm string) bool
	// NewSession returns a session, which serves one batch after another.
	NewSession() Session
}

// A Session makes the round trips of one batch at a time, those of all counters side by side. If the store fails for a
// counter, the session sets Tally.Err to an error that wraps [engine.ErrStore]. The tallies are the session's from Add or
// Check until the next Add or Check. A Session is not safe for concurrent use.
type Session interface {
	// Add begins a batch. It adds the Adds of each tally to its counter, in one round trip, and sets the Count of each
	// limit to the count before them. A tally without Adds is only read. For hits that cost no more than Demand
	// together, an inexact Count decides as the exact one would.
	Add(ctx context.Context, at Moment, tallies []*Tally)
	// Check begins a batch that adds nothing. It sets exact counts.
	Check(ctx context.Context, at Moment, tallies []*Tally)
	// Undo ends the adds of a batch: it removes the Adds that are not kept, as far as the store acknowledged them, and
	// tells replicas that missed the kept ones. It also starts the round trips that no hit waits for, and does not wait
	// for them. If it returns an error, Adds that are not kept may still count.
	Undo(ctx context.Context) error
	// Search answers the Searches of each tally whose Err is nil. If it returns an error, which wraps
	// [engine.ErrStore], some answers are later than the truth, and no Explanation of them is whole.
	Search(ctx context.Context) error
}

// A Moment is when a batch is decided.
type Moment struct {
	Time   time.Time
	Second int64 // the Unix second in which the hits of the batch count
	// Latest is the latest Second of this process so far. It is greater than Second only if the clock was set back.
	Latest int64
	// Peek is set if the batch is a check by a client, not one of a hit. If the store keeps replicas, what a client's
	// check reads is not cached: hits may reach another replica.
	Peek bool
}

// A Tally is one counter in a batch: the hits to add to it, the limits on it, and the counts that the store returned.
type Tally struct {
	ID      string // of the counter, or its alias
	Counter events.Counter
	Engine  int        // place of the counter's engine among those of the limiter
	Adds    []Addition // in order
	Limits  []Limit
	Demand  int64 // the cost of all hits of the batch on the counter
	Taken   int64 // the cost of those that are kept, as decided so far

	// Set by the session.
	Err error // why the counts are not known, or nil
	// Until is until when the counts hold if no other hits come. The zero time means that they may change at any time.
	Until time.Time
	// Settled is set by Add if no hit that the counts include can be undone. Then the counts also deny hits.
	Settled bool
	// Tick is the unit of the Resets of the counter's limits: a second or a millisecond.
	Tick     time.Duration
	Searches []Search

	countAll  bool   // denied hits are kept too
	leases    bool   // what it counts are leases
	version   uint32 // of the counter, before it was added to or read
	isUnknown bool   // a hit needs counts that no cached denial has
	failed    bool   // the shared store did not answer; Err is nil if the local engine did
	loss      int64  // the Unix second of the store's last loss, if lossKnown
	lossKnown bool
}

// An Addition is a hit as it adds to one counter.
type Addition struct {
	Cost int64 // at least 1
	// Ends is until when a settlement must find the hit, in Unix milliseconds. If zero, the hit is not settled.
	Ends int64
	// Wait is how long the hit waits for its turn at most. Until then a settlement must find the hit.
	Wait time.Duration
	// Shared is set if the hit is on other counters too, so that these may deny it.
	Shared bool
	// Counts is set if the hit is kept whatever the limits of the counter say.
	Counts bool
	Kept   bool // set before Undo

	// Set by Add.

	// Refused is set if the engine does not admit the hit, although the Limits may have room: a log has newer limits,
	// or has counted hits before it that may be undone.
	Refused bool
	// Reserved is what a settlement needs to know. If its ID is zero, there is nothing to settle.
	Reserved engine.Reserved
}

// A Limit is one limit of a tally.
type Limit struct {
	events.Limit
	Rule     *events.Rule
	Ceiling  int64 // the most that admitted hits may cost together
	Enforced bool  // a hit without room is denied

	// Set by the session.
	Count int64 // in the window, before the batch
	Exact bool  // if false, Count is an upper bound
	Level int64 // of a leaky bucket: the cost that has not leaked yet, times the milliseconds of Window
	First int64 // the first Unix second of the window
	// Since is the last Unix second of which the engine knows that the counter may lack events. If zero, it knows of
	// none.
	Since int64
}

// A Search asks how long it takes until a limit counts no more than Most, if no other hits come. The hits of the batch
// that are kept count too, and those that a batch which adds nothing has let through: Taken.
type Search struct {
	Limit int // index in Tally.Limits
	Most  int64
	// Moments is how many entries of Explanation.Frees to find. If zero, there is no Explanation.
	Moments int

	// Set by the session.
	Reset time.Duration // after Moment.Time or its second, by Tick; 0 if the limit has room, or events.Never
	// MayFit is set if the limit has room once all open reservations and leases are given back.
	MayFit      bool
	Explanation engine.Explanation
}
