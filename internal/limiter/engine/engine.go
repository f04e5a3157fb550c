package engine

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/store"
)

// Explanation is what a limit's count consists of, and how room returns.
type Explanation struct {
	Sum   []Part  // sum up to the count of the window, the oldest first; none is 0
	Frees []Freed // in the order of time
	Whole bool    // if not set, the store failed before the end
}

// Part is what was counted in an interval.
type Part struct {
	Level Level // of the interval; those of several lengths have the finest one
	Interval
}

// Freed is by how much a limit holds less from a moment on, in Unix milliseconds.
type Freed struct{ At, Count int64 }

// CeilSeconds returns the duration in whole seconds, rounded up.
func CeilSeconds(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return seconds
}

// Base is what the engines of a limiter share.
type Base struct {
	Store store.Store
	Clock func() time.Time // nil: time.Now
	// Grace is the allowance for clocks that differ and round trips that are late.
	Grace time.Duration
	// Changes counts what this process has changed of the counters.
	Changes *Changes
	// OnUse is called with each counter that is used, by its ID too, in the caller's goroutine.
	// Callers call it concurrently. nil: it is not called.
	OnUse func(id string, counter events.Counter, now time.Time)
}

// Counts of Changes are allocated by pages, so that a process with few counters has few.
const (
	changePages = 64
	// changePlaces is the number of counts of a page. There are so many that counters seldom share one: a change of one
	// counter ends the cached denials of the other.
	changePlaces = 1 << 10
)

// Changes counts what this process has changed, by counter. A denial from before a change must not be given after it.
// It is safe for concurrent use.
type Changes struct {
	// By a hash that is the same in each process, so that the same hits make the same round trips.
	pages [changePages]atomic.Pointer[[changePlaces]atomic.Uint32]
}

// Of returns how often the counter with that ID or alias was changed, or one that shares its place.
func (c *Changes) Of(id string) *atomic.Uint32 {
	place := store.HashOf(id)
	page := &c.pages[place/changePlaces%changePages]
	if page.Load() == nil {
		page.CompareAndSwap(nil, new([changePlaces]atomic.Uint32))
	}
	return &page.Load()[place%changePlaces]
}

// DefaultMaxPending bounds what may wait for the store at once, where nothing else is set.
const DefaultMaxPending = 10_000

// QueueStats is how much waits for a store, and how often that was too much.
type QueueStats struct {
	Pending int64 // what waits now
	Refused int64 // what found too many waiting, so far
}

// Pending counts what waits for the store, and bounds it: with a store that is slower than its
// callers, all callers would else wait, each of them longer than the one before, until the
// memory is full. It is safe for concurrent use.
type Pending struct {
	most    int64
	_       [64]byte // what all callers write is on no cache line that others read
	now     atomic.Int64
	_       [64]byte
	refused atomic.Int64
}

// NewPending returns a bound of so many; 0 or less: DefaultMaxPending.
func NewPending(most int) *Pending {
	return &Pending{most: int64(cmp.Or(max(most, 0), DefaultMaxPending))}
}

// Enter has n more wait, all or none, and reports whether there is room for them. Leave has to
// be called then, with as many. More than there may ever be need all the room there is.
func (p *Pending) Enter(n int) bool {
	taken := p.room(n)
	if p.now.Add(taken) <= p.most {
		return true
	}
	p.now.Add(-taken)
	p.refused.Add(int64(n))
	return false
}

// Refuse counts a call that another bound has refused.
func (p *Pending) Refuse() { p.refused.Add(1) }

// Leave ends the wait of n.
func (p *Pending) Leave(n int) { p.now.Add(-p.room(n)) }

func (p *Pending) room(n int) int64 { return min(int64(n), p.most) }

// Stats returns how much waits now, and how much was refused so far.
func (p *Pending) Stats() QueueStats { return QueueStats{p.now.Load(), p.refused.Load()} }
