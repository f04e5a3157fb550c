package limiter

import (
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// Decision is the answer to a hit or a check.
type Decision struct {
	Allowed bool
	// Unavailable is set where the hit is refused not by a limit but because the
	// store could not be asked in time and a rule wants that refused.
	Unavailable bool
	At          time.Time // the second in which the hit was stamped, UTC
	// RetryAfter is the wait until the first moment in which all limits admit the
	// hit if nothing else comes; 0 where they do now.
	RetryAfter time.Duration
	// Wait is how long a hit that is allowed waits for its turn, of leaky buckets: the longest.
	Wait   time.Duration
	Limits []LimitState // of all rules that apply, in their order, or that of the hit's parts
	// Reserved is what an admitted hit that reserves, takes leases, or waits, has added on each counter that
	// keeps it to be settled.
	Reserved []engine.Reserved
}

// LimitState is the state of one limit for a hit.
type LimitState struct {
	Part    int // of the hit that it is of; 0: the hit has none
	Name    string
	Feature events.Feature
	N       int64
	Window  time.Duration // of a calendar: the one that the hit is in
	// WindowName is hour, day, week or month if the windows are those of a calendar; else empty.
	WindowName string
	Burst      int64 // of a token bucket; 0: it counts in windows
	// Algorithm is how it counts, by its name; if empty, events.DefaultAlgorithm.
	Algorithm string
	// Count is what the window holds, or what a token bucket lacks: with the hit's cost where it was
	// admitted, without it where it was denied or only checked. Where Exact is
	// false it is an upper bound. Where Unknown is true no store answered: the hit is
	// on a deny list, or the store failed; Count and Remaining are 0 then.
	Count      int64
	Exact      bool
	Unknown    bool
	Overridden bool           // a temporary override has set Listing, or N
	Remaining  int64          // N, or the burst, less Count, never below 0
	Reset      time.Duration  // until a hit of this cost fits this limit
	Allowed    bool           // whether this limit admits the hit
	Listing    events.Listing // on which of the rule's lists the hit is
	Shadow     bool           // its no is reported, not enforced
	Over       bool           // Count is above N, and the throttle lets it be
	Incomplete bool           // the counter has not been kept for a whole window yet, or the store has lost a part of it
	// Unreserved: an admitted hit that reserves, or takes a lease, has reserved nothing on the counter.
	Unreserved bool
	// Failed is set where the store could not be asked in time. OnError says what
	// was decided then; with OnErrorLocal the state is that of this process's own
	// counters.
	Failed  bool
	OnError events.OnError
}

// Vetoes reports whether the limit does not admit the hit, and is no shadow.
func (s *LimitState) Vetoes() bool { return !s.Allowed && !s.Shadow }

// Limit returns how many the limit admits at once: N, or its burst.
func (s *LimitState) Limit() int64 { return events.Limit{N: s.N, Burst: s.Burst}.Most() }
