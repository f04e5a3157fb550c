package engine

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/counterd/counterd/store"
)

// Base is what the engines of a limiter share.
type Base struct {
	Store store.Store
	Clock func() time.Time // nil: time.Now
	// Grace is the allowance for clocks that differ and round trips that are late.
	Grace time.Duration
	// Changes counts what this process has changed of the counters.
	Changes *Changes
}

// changePlaces is how many counts of changes there are: so many that counters seldom share one,
// for each change of one would end the cached denials of the other, too.
const changePlaces = 1 << 16

// Changes counts what this process has changed, by counter: a denial from before a change must
// not be given after it. It is safe for concurrent use.
type Changes struct {
	// By a hash that is the same in each process, so that the same hits make the same trips.
	counts [changePlaces]atomic.Uint32
}

// Of returns how often the counter with that ID was changed, or one that shares its place.
func (c *Changes) Of(id string) *atomic.Uint32 {
	return &c.counts[xxhash.Sum64String(id)%changePlaces]
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

// Leave ends the wait of n.
func (p *Pending) Leave(n int) { p.now.Add(-p.room(n)) }

func (p *Pending) room(n int) int64 { return min(int64(n), p.most) }

// Stats returns how much waits now, and how much was refused so far.
func (p *Pending) Stats() QueueStats { return QueueStats{p.now.Load(), p.refused.Load()} }
