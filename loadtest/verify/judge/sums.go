package judge

import (
	"cmp"
	"math"
	"slices"

	"github.com/counterd/counterd/loadtest/exactlog"
)

// add is what a call added to a counter, at least and at most: at one of these times, by its stamp.
type add struct {
	Call
	Times
	known       int64 // from when on an answer has to know the least
	late        bool  // it is of the past
	least, most int64
	told        int64 // what was acknowledged, before it was settled
}

// span asks for what counts before a time, by stamps of those times.
type span struct {
	time int64
	Times
}

// question asks, for the sake of a call, what a counter held at least and at most. An empty span
// asks for nothing.
type question struct {
	Call
	least, most span
	denied      bool                    // the answer is a denial, which may repeat one of before
	then        func(least, most int64) // holds the answer to the bounds
}

// series are adds by the time from which on they count.
type series struct {
	adds   []add
	time   func(a add) int64
	least  bool    // what is surely in a span counts, else all that may be
	stamps []int64 // all at which one begins or ends
}

func newSeries(adds []add, least bool, time func(a add) int64) *series {
	s := &series{adds: slices.Clone(adds), least: least, time: time}
	slices.SortFunc(s.adds, func(a, b add) int { return cmp.Compare(time(a), time(b)) })
	for _, a := range adds {
		s.stamps = append(s.stamps, a.First, a.Last)
	}
	slices.Sort(s.stamps)
	s.stamps = slices.Compact(s.stamps)
	return s
}

// sums answers a span of each question, those together that are of one moment, each group in one
// walk through time. A function says what an add counts for after a moment.
func (s *series) sums(questions []question, asked func(q question) (span, int64), by func(a add, moment int64) int64) []int64 {
	sums, spans, groups := make([]int64, len(questions)), make([]span, len(questions)), map[int64][]int{}
	for i, q := range questions {
		of, moment := asked(q)
		if spans[i] = of; of != (span{}) {
			groups[moment] = append(groups[moment], i)
		}
	}
	for moment, group := range groups {
		slices.SortFunc(group, func(a, b int) int { return cmp.Compare(spans[a].time, spans[b].time) })
		begun, ended := fenwick{s.stamps, make([]int64, len(s.stamps)+1)}, fenwick{s.stamps, make([]int64, len(s.stamps)+1)}
		next := 0
		for _, i := range group {
			for ; next < len(s.adds) && s.time(s.adds[next]) < spans[i].time; next++ {
				a := s.adds[next]
				begun.add(a.First, by(a, moment))
				ended.add(a.Last, by(a, moment))
			}
			if s.least { // one that is longer than the span makes it too little
				sums[i] = max(ended.upTo(spans[i].Last)-begun.upTo(spans[i].First-1), 0)
			} else {
				sums[i] = begun.upTo(spans[i].Last) - ended.upTo(spans[i].First-1)
			}
		}
	}
	return sums
}

// fenwick is a Fenwick tree of sums over times.
type fenwick struct{ times, tree []int64 }

func (f fenwick) add(time, by int64) {
	i, _ := slices.BinarySearch(f.times, time)
	for i++; i < len(f.tree); i += i & -i {
		f.tree[i] += by
	}
}

func (f fenwick) upTo(time int64) (sum int64) {
	i, found := slices.BinarySearch(f.times, time)
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
	begun, ended   exactlog.Log
	times, heights []int64 // when it changes, and what is under way from then on
}

func newFlight(hits []Entry) *flight {
	type change struct{ time, by int64 }
	var changes []change
	for _, h := range hits {
		changes = append(changes, change{h.Sent, int64(h.Cost)}, change{h.Answered, -int64(h.Cost)})
	}
	slices.SortFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.time, b.time), -cmp.Compare(a.by, b.by)) // the highest of a moment counts
	})
	f := &flight{}
	for _, c := range changes {
		f.begun.Add(c.time, max(c.by, 0))
		f.ended.Add(c.time, max(-c.by, 0))
		f.times, f.heights = append(f.times, c.time), append(f.heights, f.begun.Total()-f.ended.Total())
	}
	return f
}

// total returns the cost of all that was under way at some time from the first on and before the last.
func (f *flight) total(from, to int64) int64 {
	return f.begun.Sum(math.MinInt64, to-1) - f.ended.Sum(math.MinInt64, from-1)
}

// most returns the highest cost at a moment between two times.
func (f *flight) most(from, to int64) (most int64) {
	first, _ := slices.BinarySearch(f.times, from)
	last, _ := slices.BinarySearch(f.times, to+1)
	for _, height := range f.heights[max(first-1, 0):last] {
		most = max(most, height)
	}
	return most
}
