package hierarchy

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"
)

// DefaultMaxPending bounds what may wait for the store at once, where nothing else is set.
const DefaultMaxPending = 10_000

var errMaxPending = errors.New("hierarchy: MaxPending is negative")

// Load is how much waits for a store, and how often that was too much.
type QueueStats struct {
	Pending int64 // what waits now
	Refused int64 // what found too many waiting, so far
}

// pending counts what waits for the store, and bounds it: with a store that is slower
// than its callers, all callers would else wait, each of them longer than the one
// before, until the memory is full.
type pending struct {
	most    int64
	_       [64]byte // what all callers write is on no cache line that others read
	now     atomic.Int64
	_       [64]byte
	refused atomic.Int64
}

func newPending(most int) *pending { return &pending{most: int64(cmp.Or(most, DefaultMaxPending))} }

// enter has n more wait, all or none, and reports whether there is room for them.
// leave has to be called then, with as many. More than there may ever be need all the
// room there is.
func (p *pending) enter(n int) bool {
	taken := p.room(n)
	if p.now.Add(taken) <= p.most {
		return true
	}
	p.now.Add(-taken)
	p.refused.Add(int64(n))
	return false
}

func (p *pending) leave(n int) { p.now.Add(-p.room(n)) }

func (p *pending) room(n int) int64 { return min(int64(n), p.most) }

func (p *pending) load() QueueStats { return QueueStats{p.now.Load(), p.refused.Load()} }

func checkMaxPending(most int) error {
	if most < 0 {
		return fmt.Errorf("%w: %d", errMaxPending, most)
	}
	return nil
}
