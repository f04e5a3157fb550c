package journal

import (
	"encoding/binary"
	"math"
)

// Size returns the most bytes that a rewritten log takes whose hits all pass these limits. Retain
// and young are those of its [Rewrite]. The limits of a counter suit a journal if it is at most
// [MaxSize]: then a hit never fails for lack of room. Increments and hits that are void or denied
// are not bounded by limits, and come in addition.
func Size(limits []Limit, retain, young int64) int {
	size := headSize(limits)
	// Clocks may be ahead of that of the rewrite, and windows are of whole seconds.
	youth := young + young/2 + second
	window := max(longest(limits, maxTime), retain, youth)
	all, recent := admissible(limits, window), admissible(limits, youth)
	size += int(min(recent, MaxSize)) * shortSize
	size += sumsSize(all-recent, window)
	// What is no longer in the window, and not yet dropped, is in sums by second.
	size += int(min(recent, young/second+2)) * sumSize
	// Sums by millisecond are up to two bytes longer.
	size += 2 * int(min(admissible(limits, longest(limits, minute-1)), all-recent, MaxSize))
	return size
}

// Spread returns how many hits the limits admit in their longest window, or in the time for which
// they are retained, and the most bytes of a log that has them if they come at equal distances: it
// is about to be rewritten.
func Spread(limits []Limit, retain int64) (hits int64, bytes int) {
	window := max(longest(limits, maxTime), retain)
	hits = admissible(limits, window)
	kept := headSize(limits) + int(min(hits*int64(uvarintSize(uint64(window/second/max(hits, 1))<<1)), MaxSize))
	return hits, kept + minDue + kept/4
}

// headSize returns the most bytes of the header.
func headSize(limits []Limit) int {
	head := Head{
		Limits: limits, Revision: math.MaxUint64, TTL: maxTime, Until: maxTime, Since: maxTime, Floor: maxTime, Coarse: maxTime,
		base: maxTime, kept: MaxSize,
	}
	return len(appendHead(nil, head, &timeline{}, 0)) + 2*sumSize // numbers of sums
}

func uvarintSize(n uint64) int { return len(binary.AppendUvarint(nil, n)) }

// sumSize is the size of a sum of a few hundred at a distance of an hour.
const sumSize = 4

// admissible returns how many hits the limits admit in a span of time, at the most.
func admissible(limits []Limit, span int64) int64 {
	if span == 0 {
		return 0
	}
	least := int64(math.MaxInt32)
	for _, l := range limits {
		windows := (span + l.Window - 1) / l.Window
		least = min(least, min(l.Ceiling, math.MaxInt32)*windows)
	}
	return least
}

// sumsSize returns the most bytes that so many hits take in sums by second. A sum is longer the
// further it is behind the one before, and the further, the fewer there are.
func sumsSize(hits, window int64) int {
	const first = 5 // the first sum begins at the second 0
	hits = min(hits, MaxSize)
	size := first + hits
	for shift := 6; shift < 30; shift += 7 { // a varint of a distance and a flag
		size += min(hits, window/second>>shift)
	}
	return int(size)
}
