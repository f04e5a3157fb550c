package engine

import (
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

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
