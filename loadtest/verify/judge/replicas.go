package judge

import (
	"cmp"
	"math/bits"
	"slices"
	"time"
)

// A round trip gives up a slow replica when half of its time is over, if another replica has
// answered. What the slow one has not acknowledged by then has an unknown outcome: a denied
// hit's adds are not rolled back there, an admitted hit's may count twice. A hit that retries
// has less time for each try, and may leave the adds of each on the slow replica.
//
// Hits of one target that share a counter go together: the oldest sets the time for all. And a
// target that has given up a server a few times in a row takes it for down. That ends all its
// round trips to the server, also the ones that have just begun.

// findGivenUp notes, of each entry, how many tries may have given up a replica.
func (j *judge) findGivenUp() {
	if j.Replicas == 1 {
		return
	}
	j.givenUp = make([]int64, len(j.Log.entries))
	var all []underWay
	for i, e := range j.Log.entries {
		j.givenUp[i] = j.triesWithin(e.took())
		all = append(all, underWay{e.Call, int32(i)})
	}
	for _, k := range j.Log.looks {
		all = append(all, underWay{k.Call, none})
	}
	j.besideOldest(all, 1)
	for _, c := range j.counters {
		var together []underWay
		for _, i := range c.entries {
			if e := j.Log.entries[i]; e.Kind == Hit { // the hits of a batch go by themselves
				together = append(together, underWay{e.Call, i})
			}
		}
		j.besideOldest(together, unlimited)
	}
}

// none is the entry of a call that is no entry.
const none = -1

// underWay is a call, and its entry.
type underWay struct {
	Call
	entry int32
}

// besideOldest notes, of each entry, the tries, so many at most, of the oldest call of its target that
// was under way at some time while it was.
func (j *judge) besideOldest(calls []underWay, most int64) {
	slices.SortFunc(calls, func(a, b underWay) int {
		return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(a.Sent, b.Sent))
	})
	oldest := 0
	for _, c := range calls {
		for o := calls[oldest]; o.Target != c.Target || o.Answered < c.Sent; o = calls[oldest] {
			oldest++ // it has ended before the ones that follow, too
		}
		if c.entry != none {
			tries := j.triesWithin(time.Duration(c.Answered - calls[oldest].Sent))
			j.givenUp[c.entry] = max(j.givenUp[c.entry], min(tries, most))
		}
	}
}

// triesWithin returns how many tries can have given up a replica in so long: the first takes half
// of the timeout, each that follows half of what is left. None is that short that less than a
// millisecond is left.
func (j *judge) triesWithin(took time.Duration) int64 {
	left := max(j.Timeout-took, time.Millisecond)
	return int64(bits.Len64(uint64(max(j.Timeout/left, 1)))) - 1
}

// mayBeLeft reports whether a replica may hold more of the entry than the answer says, or get it
// later.
func (j *judge) mayBeLeft(i int32) bool {
	return j.Replicas > 1 && (j.Log.entries[i].Outcome == Unknown || j.givenUp[i] > 0)
}

// left returns what an entry may have left on a slow replica of a counter, which counts all hits or
// not.
func (j *judge) left(e Entry, i int32, all bool) int64 {
	switch {
	case j.Replicas == 1 || e.Kind == Check || e.Outcome == Refused:
		return 0
	case !e.isHit() || all: // which are added once
		return int64(e.Cost) * min(j.givenUp[i], 1)
	}
	return int64(e.Cost) * j.givenUp[i]
}

// tries is what the tries of an entry may have left: each has a stamp of its own. An increment is
// never tried again.
func (j *judge) tries(e Entry, left int64) add {
	first, last := j.Log.second(e.Sent), j.Log.second(e.Answered)
	switch {
	case e.Stamp == 0:
	case !e.isHit():
		first, last = e.Stamp, e.Stamp
	default:
		first, last = min(first, e.Stamp), max(last, e.Stamp)
	}
	return add{e.Call, e.Sent, first, last, left, false}
}
