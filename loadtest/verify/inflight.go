package verify

import (
	"cmp"
	"slices"
)

// inFlight is how much was under way at each moment: the cost of the hits that had been sent and
// were not answered.
type inFlight struct {
	times []int64 // at which it changes
	tree  []int64 // of maxima; the leaves, the cost from each time on, are its second half
}

func newInFlight(begun, ended []point) *inFlight {
	var changes []point
	for _, p := range begun {
		changes = append(changes, point{p.time, 0, p.by})
	}
	for _, p := range ended {
		changes = append(changes, point{p.time, 0, -p.by})
	}
	slices.SortFunc(changes, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.time, b.time), -cmp.Compare(a.by, b.by)) // the highest of a moment counts
	})
	n, height := len(changes), int64(0)
	t := &inFlight{tree: make([]int64, 2*n)}
	for i, c := range changes {
		height += c.by
		t.times = append(t.times, c.time)
		t.tree[n+i] = height
	}
	for i := n - 1; i > 0; i-- {
		t.tree[i] = max(t.tree[2*i], t.tree[2*i+1])
	}
	return t
}

// most returns the highest cost between two times.
func (t *inFlight) most(from, to int64) (most int64) {
	n := len(t.times)
	first, _ := slices.BinarySearch(t.times, from)
	last, _ := slices.BinarySearch(t.times, to+1)
	for l, r := n+max(first-1, 0), n+last; l < r; l, r = l/2, r/2 {
		if l%2 == 1 {
			most = max(most, t.tree[l])
			l++
		}
		if r%2 == 1 {
			r--
			most = max(most, t.tree[r])
		}
	}
	return most
}
