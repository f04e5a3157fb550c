package page

import "slices"

// MaxPoints is the largest number of points that a line is drawn with.
const MaxPoints = 2000

// point is one of a line.
type point struct{ x, y float64 }

func (p point) isFinite() bool { return isFinite(p.x) && isFinite(p.y) }

// thin returns a line's points, at most MaxPoints. Of more it takes buckets of as many
// points each, and of a bucket the first, the lowest, the highest and the last; and one
// that is not finite, so that a gap stays one.
func thin(x, y []float64) []point {
	n := min(len(x), len(y))
	if n <= MaxPoints {
		points := make([]point, 0, n)
		for i := range n {
			points = append(points, point{x[i], y[i]})
		}
		return points
	}
	const buckets = MaxPoints / 5
	points := make([]point, 0, MaxPoints)
	for b := range buckets {
		from, to := b*n/buckets, (b+1)*n/buckets
		kept := pick(x[from:to], y[from:to])
		for _, i := range kept {
			points = append(points, point{x[from+i], y[from+i]})
		}
	}
	return points
}

// pick returns the places of a bucket's points that are kept, in their order.
func pick(x, y []float64) []int {
	lowest, highest, gap := -1, -1, -1
	for i := range y {
		switch {
		case !(point{x[i], y[i]}).isFinite():
			gap = i
			continue
		case lowest < 0:
			lowest, highest = i, i
		}
		if y[i] < y[lowest] {
			lowest = i
		}
		if y[i] > y[highest] {
			highest = i
		}
	}
	kept := []int{0, lowest, highest, gap, len(y) - 1}
	slices.Sort(kept)
	kept = slices.Compact(kept)
	return slices.DeleteFunc(kept, func(i int) bool { return i < 0 })
}
