package verify

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
	if j.copies == 1 {
		return
	}
	j.givenUp = make([]int64, len(j.log.entries))
	byTarget := map[uint16][]underWay{}
	for i, e := range j.log.entries {
		j.givenUp[i] = j.triesWithin(e.answered - e.sent)
		byTarget[e.target] = append(byTarget[e.target], underWay{e.sent, e.answered, int32(i)})
	}
	for _, k := range j.log.looks {
		byTarget[k.target] = append(byTarget[k.target], underWay{k.sent, k.answered, none})
	}
	for _, calls := range byTarget {
		eachWithOldest(calls, func(i int32, took int64) {
			j.givenUp[i] = max(j.givenUp[i], min(j.triesWithin(took), 1))
		})
	}
	for id := range j.counters {
		together := map[uint16][]underWay{}
		for _, i := range j.of[id] {
			if e := j.log.entries[i]; e.kind == hit { // the hits of a batch go by themselves
				together[e.target] = append(together[e.target], underWay{e.sent, e.answered, i})
			}
		}
		for _, hits := range together {
			eachWithOldest(hits, func(i int32, took int64) { j.givenUp[i] = max(j.givenUp[i], j.triesWithin(took)) })
		}
	}
}

// none is the entry of a call that is no entry.
const none = -1

// underWay is a call, and its entry.
type underWay struct {
	sent, answered int64
	entry          int32
}

// eachWithOldest calls do for each entry, with how long the oldest call that was under way at
// some time while it was had taken when it was answered.
func eachWithOldest(calls []underWay, do func(entry int32, took int64)) {
	slices.SortFunc(calls, func(a, b underWay) int { return cmp.Compare(a.sent, b.sent) })
	oldest := 0
	for _, c := range calls {
		for calls[oldest].answered < c.sent {
			oldest++ // it has ended before the ones that follow, too
		}
		if c.entry != none {
			do(c.entry, c.answered-calls[oldest].sent)
		}
	}
}

// triesWithin returns how many tries can have given up a replica in so many nanoseconds: the
// first takes half of the timeout, each that follows half of what is left. None is that short
// that less than a millisecond is left.
func (j *judge) triesWithin(took int64) int64 {
	left := max(j.timeout-took, int64(time.Millisecond))
	return int64(bits.Len64(uint64(max(j.timeout/left, 1)))) - 1
}

// mayBeLeft reports whether a replica may hold more of the entry than the answer says, or get it
// later.
func (j *judge) mayBeLeft(i int32) bool {
	return j.copies > 1 && (j.log.entries[i].outcome == unknown || j.givenUp[i] > 0)
}
