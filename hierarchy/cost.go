package hierarchy

import (
	"time"

	"github.com/counterd/counterd/events"
)

// itemBytes is what a bucket takes in Memcached: its smallest chunk.
const itemBytes = 96

// Cost is what one counter costs at the most, when an event comes every second.
type Cost struct {
	Finest, Coarsest Level // the levels that each event is added to
	Reads            int   // buckets in the cover of the longest window
	Bytes            int64 // memory of its buckets in Memcached, until they expire
}

// CostOf returns the cost of a counter. It depends on its retention and its
// precision.
func CostOf(counter events.Counter, grace time.Duration) Cost {
	finest, coarsest := levels(counter)
	cost := Cost{Finest: finest, Coarsest: coarsest, Reads: mostReads(ceilSeconds(retention(counter)), finest, coarsest)}
	for l := finest; l <= coarsest; l++ {
		life := BucketAt(l, 0).Expires(retention(counter), grace)
		cost.Bytes += (life/l.Seconds() + 1) * itemBytes
	}
	return cost
}

// mostReads returns the length of the longest cover of a window of that many
// seconds, wherever in a bucket of the coarsest level it begins. With a finest
// level above the second that is one that does not begin with a bucket of it.
func mostReads(seconds int64, finest, coarsest Level) int {
	most := 0
	for first := min(1, finest.Seconds()-1); first < coarsest.Seconds(); first += finest.Seconds() {
		most = max(most, CoverOf(Window{first, first + seconds - 1}, finest, coarsest).Len())
	}
	return most
}
