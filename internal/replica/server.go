package replica

import (
	"context"
	"time"

	"github.com/counterd/counterd/internal/store"
)

// Counter is a counter's name and the hash of it. Name may be empty where only
// hints are replayed.
type Counter struct {
	Name string
	Hash store.Hash
}

// Server is one server. It is safe for concurrent use.
type Server interface {
	// Name is the same in every process: places depend on it.
	Name() string
	// Up reports whether it is worth asking: it is not known to be down.
	Up() bool
	// Memory returns what is known of its losses: the Memory that Join returned for it. One
	// that has lost something does not decide alone while one that has not can be asked.
	Memory() *Memory
	// Look has its Memory check it now, and ends by the context's deadline.
	Look(ctx context.Context) error
	// Marker calls use with the item of its marker, and ends by the context's deadline.
	Marker(ctx context.Context, use func(MarkerItem) error) error
	// Keys calls yield for each item of a counter that it holds, until yield returns an error.
	Keys(ctx context.Context, yield func(Key) error) error
	// Lists reports whether it lists its keys, as far as is known: many proxies do not.
	Lists() bool
	// Start begins a round trip of adds and reads, or of data, which ends by the deadline, and returns at
	// once. The op is the caller's again until End. When the round trip has ended, the server
	// sends index to ended, once, which has room for it. late gets adds that are
	// acknowledged after that.
	Start(ctx context.Context, deadline time.Time, counter Counter, op *store.Op, index int, ended chan<- int, late Acknowledger) Exchange
	// Do makes the round trip of any other op: the writes of the op in their order.
	Do(ctx context.Context, counter Counter, op *store.Op)
}

// Acknowledger notes that a server has acknowledged all adds of a round trip after it ended.
type Acknowledger interface {
	Acknowledge(server Server, hash store.Hash, adds []store.Write)
}

// Exchange is a round trip to one server that is under way. It has one owner.
type Exchange interface {
	// GiveUp has it end now, if it has not.
	GiveUp()
	// End fills in what came of it, once it has ended, into an op like that of Start: the
	// receipt is that of a store with one server. It is the end of the exchange.
	End(op *store.Op)
}
