package hierarchy

import (
	"iter"
	"slices"
	"time"
)

// Window is an interval of whole Unix seconds, both ends included.
type Window struct {
	First, Last int64
}

// WindowAt returns the window of that length whose last second holds the
// moment. The length is in whole seconds, at least one.
func WindowAt(moment time.Time, length time.Duration) Window {
	last := moment.Unix()
	return Window{last - int64(length/time.Second) + 1, last}
}

// Seconds returns the length of the window.
func (w Window) Seconds() int64 { return w.Last - w.First + 1 }

// outward returns the smallest window of whole buckets of the level that holds w.
func (w Window) outward(l Level) Window {
	return Window{BucketAt(l, w.First).First(), BucketAt(l, w.Last).Last()}
}

// BucketRange is a row of adjacent buckets of one level, from number First to Last.
type BucketRange struct {
	Level       Level
	First, Last int64
}

// Len returns the number of buckets in the run.
func (r BucketRange) Len() int { return int(r.Last - r.First + 1) }

// runWithin returns the buckets of the level that touch the window.
func runWithin(l Level, w Window) BucketRange {
	return BucketRange{l, BucketAt(l, w.First).Number, BucketAt(l, w.Last).Number}
}

// bucketsWithin returns them one by one.
func bucketsWithin(l Level, w Window) []Bucket {
	return slices.Collect(Cover{runWithin(l, w)}.Buckets())
}

// Cover tiles a window with the fewest buckets: every second of it is in one of
// them, none is in two, and none of them reaches beyond the window. Runs are in
// the order of time; there are at most two of each level but the coarsest.
type Cover []BucketRange

// CoverOf returns the cover of the window by buckets of the levels from finest
// to coarsest. A window whose ends are not those of buckets of the finest level
// is first widened until they are.
//
// A day ends at most 60 seconds, 59 minutes and 23 hours: 142 buckets.
func CoverOf(w Window, finest, coarsest Level) Cover {
	return appendCover(make(Cover, 0, 2*Levels-1), w, finest, coarsest)
}

// appendCover appends the cover of the window.
func appendCover(cover Cover, w Window, finest, coarsest Level) Cover {
	w = w.outward(finest)
	for first := w.First; first <= w.Last; {
		l := finest
		for l < coarsest && startsWithin(l+1, first, w.Last) {
			l++
		}
		// The run ends where a bucket of the next level fits in, else with the last
		// bucket of its own that does.
		end := floorDiv(w.Last+1, l.Seconds())
		if l < coarsest {
			coarse := -floorDiv(-first, (l+1).Seconds()) * (l + 1).Seconds()
			if startsWithin(l+1, coarse, w.Last) {
				end = coarse / l.Seconds()
			}
		}
		run := BucketRange{l, first / l.Seconds(), end - 1}
		first = end * l.Seconds()
		cover = append(cover, run)
	}
	return cover
}

// startsWithin reports whether a bucket of the level begins at the second first
// and ends at last or before.
func startsWithin(l Level, first, last int64) bool {
	return first%l.Seconds() == 0 && first+l.Seconds()-1 <= last
}

// Len returns the number of buckets in the cover.
func (c Cover) Len() int {
	n := 0
	for _, run := range c {
		n += run.Len()
	}
	return n
}

// PerLevel returns the number of buckets of each level.
func (c Cover) PerLevel() (n [Levels]int) {
	for _, run := range c {
		n[run.Level] += run.Len()
	}
	return n
}

// Buckets yields the buckets in the order of time.
func (c Cover) Buckets() iter.Seq[Bucket] {
	return func(yield func(Bucket) bool) {
		for _, run := range c {
			for n := run.First; n <= run.Last; n++ {
				if !yield(Bucket{run.Level, n}) {
					return
				}
			}
		}
	}
}
