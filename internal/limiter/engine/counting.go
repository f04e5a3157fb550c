package engine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/counterd/counterd/events"
)

const (
	// MaxBy is the most that one increment adds.
	MaxBy = 1_000_000
	// IDBits are the bits of the ID of what is reserved.
	IDBits = 56
	// MaxHistory is the most intervals of one history.
	MaxHistory = 10_000
)

// Counting counts without deciding. Package counting checks the arguments and passes the calls on
// to engines, which take them to be in range: an event is at most the counter's retention back, and
// at most the grace ahead. Errors of the store wrap ErrStore. It is safe for concurrent use.
type Counting interface {
	// Increment adds by, 1 to MaxBy, to each of the counters, side by side, at that moment; the
	// zero time is now. It returns the moment in whole seconds, UTC. An error leaves open what was
	// counted: the acknowledged adds are rolled back, but an answer may be lost.
	Increment(ctx context.Context, by int64, at time.Time, counters ...events.Counter) (time.Time, error)
	// Count sums the window of that length, in whole seconds, that ends with the second of the
	// moment at; the zero time is now.
	Count(ctx context.Context, counter events.Counter, length time.Duration, at time.Time) (Count, error)
	// History returns the intervals of the level from the one that holds from to the one that
	// holds to, the empty ones included, at most MaxHistory. If the counter has no such level,
	// the error is a *RangeError.
	History(ctx context.Context, counter events.Counter, level Level, from, to time.Time) (History, error)
	// Settle replaces what a hit reserved by its true cost, once, in whichever process: of several
	// calls the first one decides, and one with another cost gets ErrSettled. After the end of the
	// reservation it is ErrEnded. Else an error leaves what was reserved, or more: repeat the call.
	Settle(ctx context.Context, r Reserved, cost int64) error
	// Renew has a lease end no sooner than so much after now, at most as long as a lease is by the rules in
	// force, and returns it with its end. A lease that has ended, or was released, is ErrEnded, and no other
	// one. After any other error it ends as before, or later: repeat the call.
	Renew(ctx context.Context, r Reserved, by time.Duration) (Reserved, error)
	// Refund takes the latest events away that the counter remembers, at most so many, and returns how
	// many that was. An engine that cannot returns a *RangeError. An error of the store leaves open what
	// was taken away.
	Refund(ctx context.Context, by int64, counter events.Counter) (refunded int64, err error)
	// Reset deletes the counter. Concurrent increments and hits may stay. After an error a part
	// of it may be left: repeat the call then.
	Reset(ctx context.Context, counter events.Counter) error
}

// Reserved is what a hit has added to one counter to be settled: all that a process needs to know of it
// that was not there.
type Reserved struct {
	// Counter is the counter's ID, or its alias: see store.Capabilities.
	Counter   string
	Retention time.Duration // of the counter, as its Precision
	Precision events.Precision
	Engine    int    // which of the engines of the process has it
	ID        uint64 // of the entry among those of the counter, of IDBits
	Time      int64  // at which it counts, in Unix milliseconds
	Ends      int64  // after which it is not settled any more, in Unix milliseconds
	Cost      int64
	// Lease is for how long a lease may be renewed; 0: it is none. To settle a lease is to release it,
	// whatever the cost.
	Lease time.Duration
	// Turn: it is settled, if at all, before the turn of the hit, at Ends. Then it stays as it is.
	Turn bool
	// Ahead is by how much the reservation, which a client may have forged, is stamped later than the clocks of a fleet
	// allow; 0: it is not, or not forged. The engine accepts it if the store has it, and else returns an AheadError.
	Ahead time.Duration
}

// Count is the sum of a window.
type Count struct {
	// From and To are the first and the last moment of the window, both included. They name whole
	// seconds, and are wider than asked for if the counter's precision is coarser. In a window that
	// slides by milliseconds they name milliseconds.
	From, To time.Time
	Count    int64
	Exact    bool // else the moments of some events are known to their minute or hour only
	// Buckets is how many buckets were summed, by level; none: the engine has no buckets.
	Buckets [Levels]int
}

// History is the counts of adjacent intervals of one level, at least one, the oldest first.
type History struct {
	Intervals []Interval
	Exact     bool // as of a Count
}

// Interval is an interval of whole Unix seconds, both included, and its count.
type Interval struct{ First, Last, Count int64 }

// Level is a step of time. Levels are ordered, the finest first.
type Level uint8

// The levels. Each one's length is a multiple of the length of the one before.
const (
	Second Level = iota
	Minute
	Hour
	Day
)

// Levels is the number of levels.
const Levels = 4

var (
	levelSeconds = [Levels]int64{1, 60, 3600, 86400}
	levelNames   = [Levels]string{"second", "minute", "hour", "day"}
)

// Seconds returns the length of the level's intervals in seconds. They are aligned to the Unix
// epoch, in UTC.
func (l Level) Seconds() int64 { return levelSeconds[l] }

// Of returns the number of the level's interval that holds the Unix second, counted from the epoch.
func (l Level) Of(second int64) int64 {
	number := second / l.Seconds()
	if second%l.Seconds() < 0 {
		number--
	}
	return number
}

// String returns second, minute, hour or day.
func (l Level) String() string { return levelNames[l] }

// ParseLevel reads what String writes.
func ParseLevel(s string) (Level, error) {
	for l, name := range levelNames {
		if s == name {
			return Level(l), nil
		}
	}
	return 0, fmt.Errorf("engine: a level is one of %s", strings.Join(levelNames[:], ", "))
}
