package journal

import (
	"encoding/binary"
	"iter"
	"math"
	"slices"

	"github.com/counterd/counterd/events"
)

// Youth returns for how long, in milliseconds, entries keep their identity in a log of that size in which
// hits wait for their turns: until these come, too, to be given back by a call and a clock that are late
// together by half of young, unless the log is over half its bound.
func Youth(young, waits int64, size int) int64 {
	if size > MaxSize/2 {
		return young
	}
	return max(young, waits+young/2)
}

// Size returns the most bytes that a rewritten log takes whose hits all pass these limits. Retain
// is that of its [Rewrite], young and waits are those of its [Youth]. The limits of a counter suit a journal
// if it is at most [MaxSize]: then a hit never fails for lack of room. Increments and hits that are void or
// denied are not bounded by limits, and come in addition.
func Size(limits []Limit, retain, young, waits int64) int {
	size := sizeOf(limits, retain, young)
	if waits > 0 {
		size = max(size, min(sizeOf(limits, retain, young+waits), MaxSize/2))
	}
	return size
}

// sizeOf returns the size of a log all of whose entries keep their identity for so long.
func sizeOf(limits []Limit, retain, young int64) int {
	size := headSize(limits)
	// Clocks may be ahead of that of the rewrite, and windows are of whole seconds.
	youth := young + young/2 + second
	window := max(longest(limits), retain, youth)
	all, recent := admissible(limits, window), admissible(limits, youth)
	size += int(min(recent, MaxSize)) * shortSize
	size += sumsSize(all-recent, window)
	// What is no longer in the window, and not yet dropped, is in sums by second.
	size += int(min(recent, young/second+2)) * sumSize
	// Sums by millisecond are up to two bytes longer.
	size += 2 * int(min(admissible(limits, Fine(limits)), all-recent, MaxSize))
	return size
}

// lateSize returns the most bytes of a log to which all events of cost 1 that the limits admit are added at once, late
// and in any order: all keep their identity, and the time when they came. See [Size].
func lateSize(limits []Limit, retain, young, waits int64) int {
	const lateSize = longSize + timeSize
	back := uvarintSize(uint64(2 * max(longest(limits), retain))) // of a time, forth or back
	// Beside the times: a tag, a writer, two bytes of its sequence, a cost and a count.
	kept := 6 + 2*back
	head := headSize(limits) + firstKept - kept
	events := admissible(limits, max(longest(limits), retain, young+young/2+second+waits))
	size, largest, due := head, 0, smallGrown
	for n := int64(1); n <= events && largest < MaxSize; n++ {
		size += lateSize
		largest = max(largest, size)
		if size+shortSize > due {
			size = head + int(n)*kept
			due = grown(size, limits)
		}
	}
	return min(largest, MaxSize)
}

// LeasesSize returns the most bytes that a rewritten log of leases takes whose limit has that window:
// each keeps its identity until it ends, and young for as long again as clocks differ.
func LeasesSize(limit Limit, young int64) int {
	window := limit.Window + young + young/2 + second
	all := min(admissible([]Limit{limit}, window), MaxSize)
	return headSize([]Limit{limit}) + int(all)*heldSize + 4*sumSize // what has ended within a second
}

// Spread returns how many hits the limits admit in their longest window, or in the time for which
// they are retained, and the bytes of a log that has them if they come at equal distances: just
// rewritten, and about to be. See [Size].
func Spread(limits []Limit, retain, young, waits int64) (hits int64, rewritten, due int) {
	window := max(longest(limits), retain, second)
	even := slices.Clone(limits)
	for i := range even {
		even[i].Window, even[i].Tiles = even[i].Longest(), false
	}
	hits = admissible(even, window)
	s := spread{limits, window, float64(hits) / float64(window), young, waits, evenSum, shortSize}
	for _, l := range limits {
		if l.isBucket() { // its burst comes once
			s.each = min(s.each, float64(l.Rate)/float64(l.Window))
		}
	}
	rewritten = s.size(math.MaxInt64, 0)
	if due = grown(rewritten, limits); due > MaxSize/2 && waits > 0 { // then it is rewritten without what waits
		rewritten = s.size(math.MaxInt64, due)
		due = max(grown(rewritten, limits), MaxSize/2)
	}
	return hits, rewritten, due
}

// Growth yields the size of a new log after each of its hits, of cost 1, on the average if they come
// at random: so many of them are in the window at a time. The log is rewritten when that is due, and
// to live for longer when extended hits have come since. It does not end. See [Size].
func Growth(limits []Limit, window, young, waits, hits int64, extended float64) iter.Seq[int] {
	return spread{limits, window, float64(hits) / float64(window), young, waits, randomSum, shortSize}.growth(extended)
}

// LeasesGrowth yields the same of a log of leases that end by themselves.
func LeasesGrowth(limit Limit, young, leases int64, extended float64) iter.Seq[int] {
	return spread{[]Limit{limit}, limit.Window, float64(leases) / float64(limit.Window), young, limit.Window, randomSum, heldSize}.growth(extended)
}

func (s spread) growth(extended float64) iter.Seq[int] {
	return func(yield func(int) bool) {
		size := s.size(0, 0)
		due, until := grown(size, s.limits), extended
		for n := int64(1); ; n++ {
			if size += s.entry; size+s.entry > due || float64(n) >= until {
				size = s.size(n, size)
				due, until = grown(size, s.limits), float64(n)+extended
			}
			if !yield(size) {
				return
			}
		}
	}
}

// spread is hits of cost 1 that are spread over a window.
type spread struct {
	limits []Limit
	window int64
	each   float64 // hits in a millisecond
	young  int64
	waits  int64
	sum    func(density float64) float64 // bytes of sums for each hit
	entry  int                           // bytes of one that is appended
}

// size returns the bytes of a log that is rewritten at its n-th hit, and had so many before.
func (s spread) size(n int64, before int) int {
	const now = 1 << 41 // milliseconds: times of the next decades are as long
	head := Head{Limits: filled(s.limits), Revision: math.MaxUint64, TTL: s.window / second, Until: now + 2*s.window, Since: now - s.window, Floor: now - s.young, base: now}
	size := len(appendHead(nil, head, &timeline{}, 0))
	if n == 0 || s.each == 0 {
		return size
	}
	// It keeps the identity of this hit, at least, and what has just left the window.
	young := min(max(1, s.each*float64(Youth(s.young, s.waits, before))), float64(n))
	summed := min(float64(n)-young, s.each*float64(s.window))
	if longest(s.limits) == 0 { // token buckets keep a level
		summed = 0
	}
	fine := min(s.each*float64(Fine(s.limits)), summed)
	kept := 4 + uvarintSize(uint64(2/s.each))
	if s.entry == heldSize { // its cost, its count, and its end
		kept += 2 + uvarintSize(uint64(2*s.window))
	}
	const first = 3 // the first sum begins at the second 0: it is longer
	bytes := first + (summed-fine)*s.sum(s.each*second) + fine*s.sum(s.each) + firstKept + (young-1)*float64(kept)
	return size + int(min(bytes, MaxSize))
}

// evenSum returns the bytes of sums for each hit, of so many in a unit of time at equal distances.
func evenSum(density float64) float64 {
	if density <= 1 {
		return float64(uvarintSize(uint64(1/density) << 1))
	}
	return (1 + min(density-1, 1)*float64(uvarintSize(uint64(density)))) / density
}

// randomSum returns the same of hits at random.
func randomSum(density float64) float64 {
	none := math.Exp(-density)
	occupied := 1 - none
	sum := 2 - density*none/occupied             // with a cost, unless it is one hit
	for long := 64.; long < 1<<31; long *= 128 { // a varint of a distance and a flag
		sum += math.Pow(none, long)
	}
	return sum * occupied / density
}

// headSize returns the most bytes of the header.
func headSize(limits []Limit) int {
	head := Head{
		Limits: filled(limits), Revision: math.MaxUint64, TTL: maxTime, Until: maxTime, Coarse: maxTime, Reset: maxTime,
		base: maxTime / 2,
	}
	return len(appendHead(nil, head, &timeline{}, 0)) + 2*sumSize // numbers of sums
}

// filled returns the limits with the level of a token bucket that has no token.
func filled(limits []Limit) []Limit {
	full := slices.Clone(limits)
	for i := range full {
		full[i].level = full[i].Ceiling * full[i].Window * min(full[i].Rate, 1)
	}
	return full
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
		if l.isBucket() {
			least = min(least, min(l.Ceiling, math.MaxInt32)+l.returned(span))
			continue
		}
		windows := (span + l.Window - 1) / l.Window
		if l.Tiles {
			shortest := events.ShortestWindow(l.Window/second, l.Zone) * second
			windows = 1 + (span+shortest-2)/shortest
		}
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
