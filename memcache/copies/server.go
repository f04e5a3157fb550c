package copies

import (
	"context"
	"time"
)

// HashBytes is the length of a Hash.
const HashBytes = 15

// Hash is of a counter's name. The counter's place depends on it.
type Hash [HashBytes]byte

// Counter is a counter's name and the hash of it. Name may be empty where only
// debts are paid.
type Counter struct {
	Name string
	Hash Hash
}

// Server is one server. It is safe for concurrent use.
type Server interface {
	// Name is the same in every process: places depend on it.
	Name() string
	// Up reports whether it is worth asking: it is not known to be down.
	Up() bool
	// Whole reports whether it has forgotten nothing, as far as is known. One that came
	// back empty does not decide alone while one that has not can be asked.
	Whole() bool
	// Start begins a trip, as the Store of package hierarchy makes them, that ends by
	// the deadline, and does not wait for it. It keeps none of the slices. When the trip
	// has ended, index is sent to ended, once, which has room for it.
	Start(ctx context.Context, deadline time.Time, counter Counter, by int64, adds []uint64, expires []int64, reads []uint64, index int, ended chan<- int) Exchange
	// RollBack subtracts from buckets where they are there, and Delete removes them, in
	// their order.
	RollBack(ctx context.Context, counter Counter, by int64, buckets []uint64) error
	Delete(ctx context.Context, counter Counter, buckets []uint64) error
}

// Exchange is a trip to one server that is under way. It has one owner.
type Exchange interface {
	// GiveUp has it end now, if it has not.
	GiveUp()
	// End returns what came of it, once it has ended, and is its end: how many adds,
	// from the first on, were acknowledged, and, without an error, the values. An error
	// that wraps strconv.ErrSyntax is of an item of the counter that holds no count.
	End(values []int64) (landed int, err error)
}
