package verify

import (
	"cmp"
	"slices"
)

// point is what was added to a counter: when, by the clock of this process, and in which
// second, by its stamp.
type point struct{ time, second, by int64 }

// question asks what had been added before a time, in those seconds.
type question struct{ time, from, to int64 }

// sumsOf answers all questions at once, in one walk through time with a Fenwick tree over
// the seconds. The points are put in order.
func sumsOf(points []point, questions []question) []int64 {
	sums := make([]int64, len(questions))
	if len(points) == 0 {
		return sums
	}
	slices.SortFunc(points, func(a, b point) int { return cmp.Compare(a.time, b.time) })
	order := make([]int, len(questions))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(questions[a].time, questions[b].time) })
	seconds := make([]int64, 0, len(points))
	for _, p := range points {
		seconds = append(seconds, p.second)
	}
	slices.Sort(seconds)
	seconds = slices.Compact(seconds)
	tree, next := make([]int64, len(seconds)+1), 0
	upTo := func(n int) (sum int64) {
		for ; n > 0; n -= n & -n {
			sum += tree[n]
		}
		return sum
	}
	for _, i := range order {
		q := questions[i]
		for ; next < len(points) && points[next].time < q.time; next++ {
			at, _ := slices.BinarySearch(seconds, points[next].second)
			for at++; at < len(tree); at += at & -at {
				tree[at] += points[next].by
			}
		}
		first, _ := slices.BinarySearch(seconds, q.from)
		last, _ := slices.BinarySearch(seconds, q.to+1)
		if first < last {
			sums[i] = upTo(last) - upTo(first)
		}
	}
	return sums
}
