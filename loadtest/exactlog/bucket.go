package exactlog

import (
	"math/bits"
	"slices"
)

// Bucket is a token bucket: so many tokens return in each Window, Rate. What it lacks is known without
// rounding, of entries in the order of a log, whatever their times. Times are in any unit, of which the
// window is a multiple, and so small that their product with the rate is an int64.
type Bucket struct {
	Rate, Window int64
	full         int64 // when it is full: that time by the rate
}

// Reach has it lack nothing ahead of the time.
func (b *Bucket) Reach(time int64) { b.full = max(b.full, time*b.Rate) }

// Take takes tokens.
func (b *Bucket) Take(tokens int64) { b.full += tokens * b.Window }

// Lacks returns how many tokens it lacks at a time, in whole ones.
func (b *Bucket) Lacks(time int64) int64 {
	return max((b.full-time*b.Rate+b.Window-1)/b.Window, 0)
}

// Add takes tokens at a time, and returns how many it then lacks.
func (b *Bucket) Add(time, tokens int64) int64 {
	b.Reach(time)
	b.Take(tokens)
	return b.Lacks(time)
}

// Peak returns the most tokens that a bucket lacks which all events of the log take theirs of: the
// smallest burst that admits them all.
func (l *Log) Peak(rate, window int64) (most int64) {
	b := Bucket{Rate: rate, Window: window}
	for i, time := range l.times {
		most = max(most, b.Add(time-l.times[0], l.upTo[i]-l.before(i)))
	}
	return most
}

// Unordered is a token bucket of entries whose order is not known, but no sooner than when each came.
// It has what the bucket then lacks at the least: the most that any entries take from some time on, less
// what returns since.
type Unordered struct {
	Bucket
	times []int64 // of all entries that may come, sorted
	tree  []sums  // of the entries that have come, over their times: a binary tree, its root the first
}

// sums are of entries one after the other: what they take, and when they leave the bucket full if it was.
type sums struct {
	taken, full int64
	any         bool
}

// NewUnordered returns a bucket that entries of those times may come to.
func NewUnordered(rate, window int64, times []int64) *Unordered {
	times = slices.Compact(slices.Sorted(slices.Values(times)))
	leaves := 1 << bits.Len(uint(len(times)))
	return &Unordered{Bucket{Rate: rate, Window: window}, times, make([]sums, 2*leaves)}
}

// Add has an entry come that takes tokens at one of the times, or later.
func (u *Unordered) Add(time, tokens int64) {
	place, _ := slices.BinarySearch(u.times, time)
	i := place + len(u.tree)/2
	u.tree[i].taken += tokens * u.Window
	u.tree[i].full, u.tree[i].any = time*u.Rate+u.tree[i].taken, true
	for i /= 2; i > 0; i /= 2 {
		u.tree[i] = u.tree[2*i].then(u.tree[2*i+1])
	}
}

// Lacks returns how many tokens the bucket lacks at a time at the least, in whole ones.
func (u *Unordered) Lacks(time int64) int64 {
	if !u.tree[1].any {
		return 0
	}
	u.full = u.tree[1].full
	return u.Bucket.Lacks(time)
}

// Since returns from when on the entries that have come take as much as the bucket then lacks.
func (u *Unordered) Since() int64 {
	i, behind := 1, int64(0)
	for i < len(u.tree)/2 {
		left, right := u.tree[2*i], u.tree[2*i+1]
		if i *= 2; left.any && left.full+right.taken+behind == u.tree[1].full {
			behind += right.taken
		} else {
			i++
		}
	}
	return u.times[i-len(u.tree)/2]
}

// then returns the sums of both.
func (s sums) then(next sums) sums {
	both := sums{s.taken + next.taken, s.full + next.taken, s.any || next.any}
	if next.any && (!s.any || next.full > both.full) {
		both.full = next.full
	}
	return both
}
