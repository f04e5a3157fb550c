package journal

import (
	"math"
	"math/bits"
)

const (
	// maxRefill is the longest time in which a token bucket fills, and maxDebt how long it takes at
	// most until one holds no more than that: increments may take tokens that it does not have.
	maxRefill = 30 * 24 * hour
	maxDebt   = 2 * maxRefill
	maxRate   = 1 << 28 // a level is below 1<<62
)

func (l Limit) isBucket() bool { return l.Rate != 0 }

// isSameBucket reports whether the limits have one level, whatever their bursts.
func (l Limit) isSameBucket(other Limit) bool {
	return l.isBucket() && l.Rate == other.Rate && l.Window == other.Window
}

// refill returns in what time an empty bucket is full.
func (l Limit) refill() int64 { return (l.Ceiling*l.Window + l.Rate - 1) / l.Rate }

// Wait returns how many milliseconds pass until a token bucket of that level, which lacks so many tokens
// more, is full.
func (l Limit) Wait(level, tokens int64) int64 {
	if !l.isBucket() {
		return 0
	}
	return (level + tokens*l.Window + l.Rate - 1) / l.Rate
}

// unknown returns since, the time after which the bucket's level knows all events, or 0 if it has been
// full since at the floor.
func (l Limit) unknown(since, floor int64) int64 {
	if !l.isBucket() || since <= floor-l.refill() {
		return 0
	}
	return since
}

// meter is what a token bucket lacks: its level, at a time. A token is as much as the bucket's Window,
// and each millisecond takes Rate away, so nothing is ever rounded. The level is never that of an
// earlier time than the bucket's last entry: a hit that is late finds what the others left.
type meter struct{ time, level int64 }

// at returns the level at a time; before that of the meter it is higher.
func (m meter) at(l Limit, time int64) int64 {
	passed := time - m.time
	switch {
	case passed > m.level/l.Rate:
		return 0
	case passed < -maxDebt:
		passed = -maxDebt
	}
	return min(m.level-passed*l.Rate, maxDebt*l.Rate)
}

// units returns so many tokens in the unit of levels.
func (l Limit) units(tokens int64) int64 {
	if high, low := bits.Mul64(uint64(tokens), uint64(l.Window)); high == 0 && low < math.MaxInt64 {
		return int64(low)
	}
	return math.MaxInt64
}

// add takes units at a time. What a bucket lacks beyond maxDebt it forgets, also of a hit that is to be settled: one
// that it has not admitted, in shadow.
func (m *meter) add(l Limit, time, units int64) {
	if time > m.time {
		m.time, m.level = time, m.at(l, time)
	}
	m.level += min(units, maxDebt*l.Rate-m.level)
}

// addAll takes what is in the sums.
func (m *meter) addAll(l Limit, sums *timeline) {
	for i, time := range sums.times {
		if tokens := sums.upTo(i+1) - sums.upTo(i); tokens > 0 {
			m.add(l, time, l.units(tokens))
		}
	}
}

// tokens returns a level in whole tokens.
func (l Limit) tokens(level int64) int64 { return level/l.Window + min(level%l.Window, 1) }

// frees returns the first moment, from now on, at which the bucket has so many tokens.
func (m meter) frees(l Limit, tokens, now int64) int64 {
	room, level := l.Ceiling-tokens, m.at(l, now)
	if room > level/l.Window || room*l.Window >= level {
		return now
	}
	return now + (level-room*l.Window+l.Rate-1)/l.Rate
}

// bucket is a token bucket as a log fills it, entry by entry.
type bucket struct {
	Limit
	floor meter // at the floor of the log
	own   bool  // the log has it
	since int64
	level meter
}

// buckets are those of the limits of a log and of its reader: one for each rate. Their levels are
// behind the first records, as many as are folded.
type buckets struct {
	list   []bucket
	folded int
	ahead  []meter // of each record that is folded, and each bucket
}

func (b *buckets) clear() { b.list, b.folded, b.ahead = b.list[:0], 0, b.ahead[:0] }

// begin begins with the levels at the floor. A bucket that the log does not have is filled by its sums.
func (b *buckets) begin(head *Head, others []Limit, sums *timeline) {
	for _, l := range head.Limits {
		if l.isBucket() && b.of(l) == nil {
			b.list = append(b.list, bucket{Limit: l, floor: meter{head.Floor, l.level}, own: true, since: l.since})
		}
	}
	for _, l := range others {
		if l.isBucket() && b.of(l) == nil {
			floor := meter{}
			floor.addAll(l, sums)
			b.list = append(b.list, bucket{Limit: l, floor: meter{head.Floor, floor.at(l, head.Floor)}, since: head.Since})
		}
	}
}

// empty empties the buckets at a later floor: what was ahead of it counts nothing.
func (b *buckets) empty(floor int64) {
	for i := range b.list {
		b.list[i].floor = meter{floor, 0}
	}
}

// of returns the bucket of the limit, or nil.
func (b *buckets) of(l Limit) *bucket {
	for i := range b.list {
		if b.list[i].isSameBucket(l) {
			return &b.list[i]
		}
	}
	return nil
}
