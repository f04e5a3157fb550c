package run

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/counterd/counterd/loadtest/traffic"
)

// Target is what is loaded.
type Target interface {
	// Names are where it is.
	Names() []string
	// Probe returns why calls like that one cannot be made, and adds nothing.
	Probe(ctx context.Context, call traffic.Call) error
	// Do makes the n-th call. Many goroutines call it at once.
	Do(ctx context.Context, n int64, call traffic.Call) Answer
	// Read tells what the target has done and taken since its beginning.
	Read(ctx context.Context) Reading
	Close() error
}

// Answer is what a call was answered with.
type Answer struct {
	Status  string // its code, or what went wrong, from a small set
	Failed  bool   // it is not an answer that the contract has for a call that can be made
	Decided []Decided
}

// Verdict is what was said of a hit.
type Verdict uint8

// The verdicts.
const (
	Admitted Verdict = iota
	Denied
	ShadowDenied // of a limit: its no is not enforced
	Unavailable  // of a hit: it could not be decided
	Fault        // of a hit in a batch: it was at fault
)

// Decided is a hit that was decided.
type Decided struct {
	Verdict Verdict
	OnError bool // wholly or in part without the store
	Limits  []Said
}

// Said is what a limit said of a hit.
type Said struct {
	Limit   string
	Verdict Verdict
}

// Reading is what a target has done and taken since its beginning. What is not known has a
// note that says why.
type Reading struct {
	Trips, Reads  int64 // of its stores: exchanges with servers, and buckets read
	StoreNote     string
	Began         []float64 // when each server that tells of them did, in seconds since 1970, if it says so
	Processes     []Taken
	ProcessesNote string
}

// restarted reports whether a server has begun anew since. The sum of what all have counted
// may hide that: others have counted, or it has itself, beyond where it was.
func (r Reading) restarted(after Reading) bool {
	// A server reckons when it began from the clock, which is set now and then.
	const slack = 2
	return !slices.EqualFunc(r.Began, after.Began, func(one, other float64) bool { return math.Abs(one-other) <= slack })
}

// Taken is what a process has taken.
type Taken struct {
	PID       int
	CPU       time.Duration
	Now, Most int64 // bytes of memory
}
