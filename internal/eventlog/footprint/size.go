package footprint

import (
	"encoding/binary"
	"iter"
	"math"

	"github.com/counterd/counterd/internal/eventlog/journal"
)

// Size returns the most bytes that a rewritten log takes whose hits all pass these limits. Retain
// is that of its [journal.Rewrite], young and waits are those of its [journal.Youth]. The limits of a counter suit a journal
// if it is at most [journal.MaxSize]: then a hit never fails for lack of room. Increments and hits that are void or
// denied are not bounded by limits, and come in addition.
func Size(limits []journal.Limit, retain, young, waits int64) int {
	size := sizeOf(limits, retain, young)
	if waits > 0 {
		size = max(size, min(sizeOf(limits, retain, young+waits), journal.MaxSize/2))
	}
	return size
}

// sizeOf returns the size of a log all of whose entries keep their identity for so long.
func sizeOf(limits []journal.Limit, retain, young int64) int {
	size := headSize(limits)
	// Clocks may be ahead of that of the rewrite, and windows are of whole seconds.
	youth := young + young/2 + second
	window := max(journal.LongestWindow(limits), retain, youth)
	all, recent := admissible(limits, window), admissible(limits, youth)
	size += int(min(recent, journal.MaxSize)) * journal.EntrySize
	size += sumsSize(all-recent, window)
	// What is no longer in the window, and not yet dropped, is in sums by second.
	size += int(min(recent, young/second+2)) * sumSize
	// Sums by millisecond are up to two bytes longer.
	size += 2 * int(min(admissible(limits, journal.Fine(limits)), all-recent, journal.MaxSize))
	return size
}

// lateSize returns the most bytes of a log to which all events of cost 1 that the limits admit are added at once, late
// and in any order: all keep their identity, and the time when they came. See [Size].
func lateSize(limits []journal.Limit, retain, young, waits int64) int {
	back := uvarintSize(uint64(2 * max(journal.LongestWindow(limits), retain))) // of a time, forth or back
	// Beside the times: a tag, a writer, two bytes of its sequence, a cost and a count.
	kept := 6 + 2*back
	head := headSize(limits) + firstKept - kept
	events := admissible(limits, max(journal.LongestWindow(limits), retain, young+young/2+second+waits))
	size, largest, due := head, 0, journal.Grown(0, nil)
	for n := int64(1); n <= events && largest < journal.MaxSize; n++ {
		size += journal.TimedEntrySize
		largest = max(largest, size)
		if size+journal.EntrySize > due {
			size = head + int(n)*kept
			due = journal.Grown(size, limits)
		}
	}
	return min(largest, journal.MaxSize)
}

// LeasesSize returns the most bytes that a rewritten log of leases takes whose limit has that window:
// each keeps its identity until it ends, and young for as long again as clocks differ.
func LeasesSize(limit journal.Limit, young int64) int {
	window := limit.Window + young + young/2 + second
	all := min(admissible([]journal.Limit{limit}, window), journal.MaxSize)
	return headSize([]journal.Limit{limit}) + int(all)*journal.TimedEntrySize + 4*sumSize // what has ended within a second
}

// Spread returns how many hits the limits admit in their longest window, or in the time for which
// they are retained, and the bytes of a log that has them if they come at equal distances: just
// rewritten, and about to be. See [Size].
func Spread(limits []journal.Limit, retain, young, waits int64) (hits int64, rewritten, due int) {
	window := max(journal.LongestWindow(limits), retain, second)
	hits = admissible(limits, window)
	s := spread{limits, window, float64(hits) / float64(window), young, waits, evenSum, journal.EntrySize}
	for _, l := range limits {
		if l.Rate > 0 { // its burst comes once
			s.each = min(s.each, float64(l.Rate)/float64(l.Window))
		}
	}
	rewritten = s.size(math.MaxInt64, 0)
	if due = journal.Grown(rewritten, limits); due > journal.MaxSize/2 && waits > 0 { // then it is rewritten without what waits
		rewritten = s.size(math.MaxInt64, due)
		due = max(journal.Grown(rewritten, limits), journal.MaxSize/2)
	}
	return hits, rewritten, due
}

// Growth yields the size of a new log after each of its hits, of cost 1, on the average if they come
// at random: so many of them are in the window at a time. The log is rewritten when that is due, and
// to live for longer when extended hits have come since. It does not end. See [Size].
func Growth(limits []journal.Limit, window, young, waits, hits int64, extended float64) iter.Seq[int] {
	return spread{limits, window, float64(hits) / float64(window), young, waits, randomSum, journal.EntrySize}.growth(extended)
}

// LeasesGrowth yields the same of a log of leases that end by themselves.
func LeasesGrowth(limit journal.Limit, young, leases int64, extended float64) iter.Seq[int] {
	return spread{[]journal.Limit{limit}, limit.Window, float64(leases) / float64(limit.Window), young, limit.Window, randomSum, journal.TimedEntrySize}.growth(extended)
}

func (s spread) growth(extended float64) iter.Seq[int] {
	return func(yield func(int) bool) {
		size := s.size(0, 0)
		due, until := journal.Grown(size, s.limits), extended
		for n := int64(1); ; n++ {
			if size += s.entry; size+s.entry > due || float64(n) >= until {
				size = s.size(n, size)
				due, until = journal.Grown(size, s.limits), float64(n)+extended
			}
			if !yield(size) {
				return
			}
		}
	}
}

// spread is hits of cost 1 that are spread over a window.
type spread struct {
	limits []journal.Limit
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
	head := journal.Head{Limits: s.limits, Revision: math.MaxUint64, TTL: s.window / second, Until: now + 2*s.window, Since: now - s.window, Floor: now - s.young}
	size := journal.HeadSize(head, now)
	if n == 0 || s.each == 0 {
		return size
	}
	// It keeps the identity of this hit, at least, and what has just left the window.
	young := min(max(1, s.each*float64(journal.Youth(s.young, s.waits, before))), float64(n))
	summed := min(float64(n)-young, s.each*float64(s.window))
	if journal.LongestWindow(s.limits) == 0 { // token buckets keep a level
		summed = 0
	}
	fine := min(s.each*float64(journal.Fine(s.limits)), summed)
	kept := 4 + uvarintSize(uint64(2/s.each))
	if s.entry == journal.TimedEntrySize { // its cost, its count, and its end
		kept += 2 + uvarintSize(uint64(2*s.window))
	}
	const first = 3 // the first sum begins at the second 0: it is longer
	bytes := first + (summed-fine)*s.sum(s.each*second) + fine*s.sum(s.each) + firstKept + (young-1)*float64(kept)
	return size + int(min(bytes, journal.MaxSize))
}

// evenSum returns the bytes of sums for each hit, of so many in a unit of time at equal distances.
func evenSum(density float64) float64 {
	if density <= 1 {
		return float64(uvarintSize(uint64(1/density) << 2))
	}
	return (1 + min(density-1, 1)*float64(uvarintSize(uint64(density)))) / density
}

// randomSum returns the same of hits at random.
func randomSum(density float64) float64 {
	none := math.Exp(-density)
	occupied := 1 - none
	sum := 2 - density*none/occupied             // with a cost, unless it is one hit
	for long := 32.; long < 1<<31; long *= 128 { // a varint of a distance and two flags
		sum += math.Pow(none, long)
	}
	return sum * occupied / density
}

// headSize returns the most bytes of the header.
func headSize(limits []journal.Limit) int {
	const last = 1<<47 - 1 // the largest time
	return journal.HeadSize(journal.Head{Limits: limits, Revision: math.MaxUint64, TTL: last, Until: last, Coarse: last, Reset: last}, last/2)
}

func uvarintSize(n uint64) int { return len(binary.AppendUvarint(nil, n)) }

const second = 1000 // in milliseconds

// firstKept is about what the first entry of a process takes that a rewrite keeps.
const firstKept = 12

// sumSize is the size of a sum of a few hundred at a distance of an hour.
const sumSize = 4

// admissible returns how many hits the limits admit in a span of time, at the most.
func admissible(limits []journal.Limit, span int64) int64 {
	if span == 0 {
		return 0
	}
	least := int64(math.MaxInt32)
	for _, l := range limits {
		if l.Rate > 0 {
			least = min(least, min(l.Ceiling, math.MaxInt32)+span*l.Rate/l.Window+1)
			continue
		}
		windows := (span + l.Window - 1) / l.Window
		least = min(least, min(l.Ceiling, math.MaxInt32)*windows)
	}
	return least
}

// sumsSize returns the most bytes that so many hits take in sums by second. A sum is longer the
// further it is behind the one before, and the further, the fewer there are.
func sumsSize(hits, window int64) int {
	const first = 5 // the first sum begins at the second 0
	hits = min(hits, journal.MaxSize)
	size := first + hits
	for shift := 5; shift < 30; shift += 7 { // a varint of a distance and two flags
		size += min(hits, window/second>>shift)
	}
	return int(size)
}
