package suggest

import (
	"fmt"
	"slices"
	"sort"
)

// together are limits for those windows of a population that its log is long enough for.
type together struct {
	population *population
	usable     int // windows, the shortest ones
	limits     []int64
}

// choose returns limits that together deny at most so many features: a feature is denied if
// it exceeds one of them. The share that each window by itself may deny is the same for
// all, and as large as it can be. Then each limit, the longest window's first, is made as
// small as the others leave it. So none of them can be smaller.
func choose(c *population, usable, deny int) together {
	t := together{population: c, usable: usable}
	sorted := make([][]int64, usable)
	for w := range usable {
		sorted[w] = c.sorted(w)
	}
	// The more each may deny, the more all do.
	alone := sort.Search(deny, func(fewer int) bool { return t.alone(sorted, fewer+1).denied(-1) > deny })
	t = t.alone(sorted, alone)
	for w := range slices.Backward(t.limits) {
		var left []int64
		for feature := range c.features {
			if !t.denies(feature, w) {
				left = append(left, c.largest[w][feature])
			}
		}
		slices.Sort(left)
		t.limits[w] = smallest(left, deny-t.denied(w))
	}
	return t
}

// alone returns the smallest limits each of which by itself denies at most so many.
func (t together) alone(sorted [][]int64, deny int) together {
	t.limits = make([]int64, t.usable)
	for w := range t.limits {
		t.limits[w] = smallest(sorted[w], deny)
	}
	return t
}

// denied returns how many features the limits deny, that of a window left out.
func (t together) denied(without int) int {
	denied := 0
	for feature := range t.population.features {
		if t.denies(feature, without) {
			denied++
		}
	}
	return denied
}

func (t together) denies(feature, without int) bool {
	for w, limit := range t.limits {
		if w != without && t.population.largest[w][feature] > limit {
			return true
		}
	}
	return false
}

// idle says why the limit of a window can never deny a hit that the others admit, or
// nothing. Of limits of which each makes the other idle there are none: a longer window
// that allows no more than a shorter one allows less than the shorter one does in its time.
func (t together) idle(w int) string {
	for v := range t.limits {
		if t.covers(v, w) && !t.covered(v) {
			return fmt.Sprintf("%d/%s denies all that it would", t.limits[v], windows()[v].unit)
		}
	}
	return ""
}

// covers reports whether the limit of window v denies every hit that that of w does.
func (t together) covers(v, w int) bool {
	all := windows()
	return v > w && t.limits[v] <= t.limits[w] || v < w && t.limits[v]*(all[w].seconds/all[v].seconds) <= t.limits[w]
}

// covered reports whether some other limit covers that of the window.
func (t together) covered(w int) bool {
	for v := range t.limits {
		if t.covers(v, w) {
			return true
		}
	}
	return false
}
