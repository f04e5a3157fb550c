package memcache

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/counterd/counterd/memcache/wire"
)

// RoundTripKind is what an exchange with a server is for.
type RoundTripKind int

const (
	Exchange RoundTripKind = iota + 1 // adds to buckets of a counter, and reads some
	RollBack                          // subtracts what was added for nothing
	Delete                            // removes buckets, for a reset
	Look                              // reads buckets and their versions, for a repair
	Raise                             // sets a bucket that was too low, or missing
)

var tripKindNames = [...]string{Exchange: "exchange", RollBack: "roll_back", Delete: "delete", Look: "repair_read", Raise: "repair_write"}

// String returns exchange, roll_back, delete, repair_read or repair_write.
func (k RoundTripKind) String() string {
	if k >= Exchange && int(k) < len(tripKindNames) {
		return tripKindNames[k]
	}
	return fmt.Sprintf("TripKind(%d)", int(k))
}

// RoundTripKinds returns all kinds.
func RoundTripKinds() []RoundTripKind {
	return []RoundTripKind{Exchange, RollBack, Delete, Look, Raise}
}

// Trip is one exchange with one server, for one counter, that has ended.
type RoundTrip struct {
	Server string // its name, as in the config
	Kind   RoundTripKind
	Adds   int // the buckets that it was to change: to add to, subtract from, delete or set
	Reads  int // the buckets that it was to read
	Began  time.Time
	Took   time.Duration // until its answer came, or its caller left
	Err    error         // nil, or why it failed; see OutcomeOf
}

// What OutcomeOf returns.
const (
	OutcomeOK      = "ok"
	OutcomeTimeout = "timeout" // no answer in time, or no connection
	OutcomeDown    = "down"    // the server is known to be down: it was not asked, or not waited for
	OutcomeRefused = "refused" // the server took no connection, or did not let this process in
	OutcomeClosed  = "closed"  // the fleet is
	OutcomeError   = "error"   // anything else
)

// Outcomes returns all that OutcomeOf may return.
func Outcomes() []string {
	return []string{OutcomeOK, OutcomeTimeout, OutcomeDown, OutcomeRefused, OutcomeClosed, OutcomeError}
}

// OutcomeOf returns what became of a trip that ended with the error: one of Outcomes.
func OutcomeOf(err error) string {
	switch {
	case err == nil:
		return OutcomeOK
	case errors.Is(err, ErrClosed):
		return OutcomeClosed
	case errors.Is(err, ErrDown):
		return OutcomeDown
	case ranOut(err):
		return OutcomeTimeout
	case wire.IsRefused(err):
		return OutcomeRefused
	}
	return OutcomeError
}

func ranOut(err error) bool {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, wire.ErrBusy) {
		return true
	}
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// tell calls OnRoundTrip with the exchange, which has ended. An exchange with nothing to do
// asks no server.
func (e *exchange) tell(err error) {
	told := e.server.common.OnRoundTrip
	if told == nil || len(e.writes)+len(e.op.Reads) == 0 {
		return
	}
	// By the wall clock as it is now, not as it was when the process began: it may have been
	// set since.
	now := time.Now()
	ago := wire.Instant(now) - e.now
	took := ago
	if e.over != 0 {
		took = e.over - e.now
	}
	told(e.ctx, RoundTrip{
		Server: e.server.Endpoint.Name, Kind: e.kind, Adds: len(e.writes), Reads: len(e.op.Reads),
		Began: now.Add(-time.Duration(ago)), Took: time.Duration(max(took, 0)), Err: err,
	})
}
