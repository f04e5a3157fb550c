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
	var calls []Call // of the entries, and those of counts behind them
	var all []int32
	for _, e := range j.Log.entries {
		calls = append(calls, e.Call)
	}
	for _, k := range j.Log.looks {
		calls = append(calls, k.Call)
	}
	for i := range calls {
		all = append(all, int32(i))
	}
	for i := range j.givenUp {
		j.givenUp[i] = j.triesWithin(calls[i].took())
	}
	j.besideOldest(calls, all, 1)
	for _, c := range j.counters { // the hits of a batch go by themselves
		j.besideOldest(calls, c.which(func(_ int32, e Entry) bool { return e.Kind == Hit })(), unlimited)
	}
}

// besideOldest notes, of each entry among those calls, the tries, so many at most, of the oldest
// call of its target that was under way at some time while it was.
func (j *judge) besideOldest(calls []Call, those []int32, most int64) {
	slices.SortFunc(those, func(a, b int32) int {
		return cmp.Or(cmp.Compare(calls[a].Target, calls[b].Target), cmp.Compare(calls[a].Sent, calls[b].Sent))
	})
	oldest := 0
	for _, i := range those {
		c := calls[i]
		for o := calls[those[oldest]]; o.Target != c.Target || o.Answered < c.Sent; o = calls[those[oldest]] {
			oldest++ // it has ended before the ones that follow, too
		}
		if int(i) < len(j.givenUp) {
			tries := j.triesWithin(time.Duration(c.Answered - calls[those[oldest]].Sent))
			j.givenUp[i] = max(j.givenUp[i], min(tries, most))
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

// left is what the tries of an entry may have left on a slow replica of a counter. Each has a stamp
// of its own; but what every call adds is added once, and never tried again.
func (c *counter) left(e Entry, i int32) add {
	a := add{Call: e.Call, Times: Seconds(c.Log.second(e.Sent), c.Log.second(e.Answered)), most: int64(e.Cost) * c.givenUp[i]}
	if e.Kind == Check || e.Outcome == Refused || c.Rule.Log && !c.losses.alone(e, c.Timeout) {
		a.most = 0
	}
	if !e.isHit() || c.all {
		a.most = min(a.most, int64(e.Cost))
	}
	switch {
	case e.Stamp == 0:
	case !e.isHit():
		a.Times = c.stamped(e)
	default:
		stamp := Seconds(e.Stamp, e.Stamp)
		a.Times = Times{min(a.First, stamp.First), max(a.Last, stamp.Last)}
	}
	return a
}
