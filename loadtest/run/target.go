package run

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/loadtest/traffic"
)

// Target is what a run loads.
type Target interface {
	Names() []string
	// Probe returns why calls like that one cannot be made, and adds nothing.
	Probe(ctx context.Context, call traffic.Call) error
	// Do makes the n-th call. Many goroutines call it at once.
	Do(ctx context.Context, n int64, call traffic.Call) Answer
	// Read returns the work and the usage of the target.
	Read(ctx context.Context) Reading
	Close() error
}

// Answer is the answer to a call.
type Answer struct {
	Status  string        // its code, or what went wrong, from a small set
	Failed  bool          // the contract does not have it for a valid call
	Results []wire.Result // of its hits; a status 503 has no decision, or one that is not used
}

// Reading is the work and the usage of a target's processes since their beginning.
type Reading struct {
	Trips, Reads int64     // of its stores: round trips, and buckets read
	StoreNote    string    // why some are unknown
	Began        []float64 // the beginnings of processes that tell it, in seconds since 1970
	CPU          time.Duration
	Memory       int64 // bytes
	Here         bool  // they are other processes of this machine
}

// restarted reports whether a server has restarted since, which sums may hide.
func (r Reading) restarted(after Reading) bool {
	const slack = 2 // a server computes its beginning from the clock, which is adjusted
	return after.Trips < r.Trips || after.Reads < r.Reads || after.CPU < r.CPU ||
		!slices.EqualFunc(r.Began, after.Began, func(one, other float64) bool { return math.Abs(one-other) <= slack })
}
