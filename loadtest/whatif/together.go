package whatif

import (
	"fmt"
	"slices"
	"sort"
)

// together are limits of a population for the shortest spans: its log is at least as long as
// these.
type together struct {
	*population
	limits []int64
}

// choose returns limits that together deny at most so many features: a feature is denied if
// it exceeds one of them. The share that each window by itself may deny is the same for
// all, and as large as it can be. Then each limit, the longest window's first, is made as
// small as the others leave it. So none of them can be smaller.
func (p *population) choose(usable, deny int) together {
	t := together{p, make([]int64, usable)}
	var sorted [][]int64
	for i := range usable {
		sorted = append(sorted, slices.Sorted(slices.Values(p.largest[i])))
	}
	// each sets the smallest limits each of which by itself denies at most so many.
	each := func(deny int) {
		for i := range t.limits {
			t.limits[i] = smallest(sorted[i], deny)
		}
	}
	// The more each may deny, the more all do.
	each(sort.Search(deny, func(fewer int) bool {
		each(fewer + 1)
		n, _ := t.denied(-1)
		return n > deny
	}))
	for i := range slices.Backward(t.limits) {
		var left []int64
		for feature := range p.traffic {
			if !t.denies(feature, i) {
				left = append(left, p.largest[i][feature])
			}
		}
		slices.Sort(left)
		others, _ := t.denied(i)
		t.limits[i] = smallest(left, deny-others)
	}
	return t
}

// denied returns how many features the limits deny, that of a span left out, and their traffic.
func (t together) denied(without int) (n int, traffic int64) {
	for feature := range t.traffic {
		if t.denies(feature, without) {
			n++
			traffic += t.traffic[feature]
		}
	}
	return n, traffic
}

func (t together) denies(feature, without int) bool {
	for i, limit := range t.limits {
		if i != without && t.largest[i][feature] > limit {
			return true
		}
	}
	return false
}

// idle says why the limit of a span can never deny a hit that the others admit, or
// nothing. Of limits of which each makes the other idle there are none: a longer window
// that allows no more than a shorter one allows less than the shorter one does in its time.
func (t together) idle(i int) string {
	for j := range t.limits {
		if t.covers(j, i) && t.idle(j) == "" {
			return fmt.Sprintf("%d/%s denies all that it would", t.limits[j], spans()[j].unit)
		}
	}
	return ""
}

// covers reports whether the limit of span j denies every hit that that of i does.
func (t together) covers(j, i int) bool {
	all := spans()
	return j > i && t.limits[j] <= t.limits[i] || j < i && t.limits[j]*(all[i].seconds/all[j].seconds) <= t.limits[i]
}
