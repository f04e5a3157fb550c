package judge

import (
	"cmp"
	"math"
	"slices"

	"github.com/counterd/counterd/loadtest/exactlog"
)

// add is what a call added to a counter, or may have: in one of these Unix seconds, by its stamp.
type add struct {
	Call
	first, last int64
	by          int64
}

func (a add) touches(from, to int64) bool { return a.first <= to && a.last >= from }

// at is an add in one second; 0: in any.
func at(call Call, second, by int64) add {
	if second == 0 {
		return add{call, math.MinInt64, math.MaxInt64, by}
	}
	return add{call, second, second, by}
}

// question asks what had been added before a time, in those seconds, for the sake of a call.
type question struct {
	Call
	entry          int32
	time, from, to int64
}

// sumsOf answers all questions at once, in one walk through time: each add counts from a time on, in
// all of its seconds.
func sumsOf(adds []add, timeOf func(Call) int64, questions []question) []int64 {
	sums := make([]int64, len(questions))
	adds = slices.SortedFunc(slices.Values(adds), func(a, b add) int { return cmp.Compare(timeOf(a.Call), timeOf(b.Call)) })
	order := make([]int, len(questions))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(questions[a].time, questions[b].time) })
	begun := newFenwick(adds, func(a add) int64 { return a.first })
	ended := newFenwick(adds, func(a add) int64 { return a.last })
	next := 0
	for _, i := range order {
		q := questions[i]
		for ; next < len(adds) && timeOf(adds[next].Call) < q.time; next++ {
			begun.add(adds[next].first, adds[next].by)
			ended.add(adds[next].last, adds[next].by)
		}
		sums[i] = begun.upTo(q.to) - ended.upTo(q.from-1)
	}
	return sums
}

func sent(c Call) int64     { return c.Sent }
func answered(c Call) int64 { return c.Answered }

// fenwick is a Fenwick tree of sums over seconds.
type fenwick struct{ seconds, tree []int64 }

func newFenwick(adds []add, second func(add) int64) fenwick {
	var seconds []int64
	for _, a := range adds {
		seconds = append(seconds, second(a))
	}
	slices.Sort(seconds)
	seconds = slices.Compact(seconds)
	return fenwick{seconds, make([]int64, len(seconds)+1)}
}

func (f fenwick) add(second, by int64) {
	i, _ := slices.BinarySearch(f.seconds, second)
	for i++; i < len(f.tree); i += i & -i {
		f.tree[i] += by
	}
}

func (f fenwick) upTo(second int64) (sum int64) {
	i, found := slices.BinarySearch(f.seconds, second)
	if found {
		i++
	}
	for ; i > 0; i -= i & -i {
		sum += f.tree[i]
	}
	return sum
}

// flight is how much was under way at each moment: the cost of the hits that had been sent and
// were not answered.
type flight struct {
	begun, ended exactlog.Log
	times        []int64 // at which it changes
	tree         []int64 // of maxima; the leaves, the cost from each time on, are its second half
}

func newFlight(hits []add) *flight {
	type change struct{ time, by int64 }
	var changes []change
	for _, h := range hits {
		changes = append(changes, change{h.Sent, h.by}, change{h.Answered, -h.by})
	}
	slices.SortFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.time, b.time), -cmp.Compare(a.by, b.by)) // the highest of a moment counts
	})
	n, height := len(changes), int64(0)
	f := &flight{tree: make([]int64, 2*n)}
	for i, c := range changes {
		if c.by > 0 {
			f.begun.Add(c.time, c.by)
		} else {
			f.ended.Add(c.time, -c.by)
		}
		height += c.by
		f.times = append(f.times, c.time)
		f.tree[n+i] = height
	}
	for i := n - 1; i > 0; i-- {
		f.tree[i] = max(f.tree[2*i], f.tree[2*i+1])
	}
	return f
}

// total returns the cost of all that was under way at some time from the first on and before the last.
func (f *flight) total(from, to int64) int64 {
	return f.begun.Sum(math.MinInt64, to-1) - f.ended.Sum(math.MinInt64, from-1)
}

// most returns the highest cost at a moment between two times.
func (f *flight) most(from, to int64) (most int64) {
	n := len(f.times)
	first, _ := slices.BinarySearch(f.times, from)
	last, _ := slices.BinarySearch(f.times, to+1)
	for l, r := n+max(first-1, 0), n+last; l < r; l, r = l/2, r/2 {
		if l%2 == 1 {
			most = max(most, f.tree[l])
			l++
		}
		if r%2 == 1 {
			r--
			most = max(most, f.tree[r])
		}
	}
	return most
}
