package hierarchy

import (
	"slices"
	"time"
)

// search looks for the first second in which a hit fits a limit, if nothing else
// comes: when so many of those events have left the window, the oldest first, that
// there is room for its cost.
//
// It goes down the hierarchy, from the buckets that tile the window to that one
// in which the last of those events lies, its children, and theirs. Where it is cut short
// that event lies no later than the hit, and so the wait is no longer than the window.
type search struct {
	of     *windows
	limit  int
	lacks  int64    // how much has to leave
	need   int64    // how much of that the found bucket has, and those behind it
	tiles  []Bucket // in the order of time, in which it has to be found
	found  Bucket   // the best so far: what has to leave lies no later than its end
	wanted []Bucket // that it has to know to go on
	over   bool     // it goes no further
}

// beginSearch begins a search on what is known of the counter, and returns its number; ok is
// false if nothing has to leave.
func (w *windows) beginSearch(limit int, ahead, cost int64) (number int, ok bool) {
	l := &w.all[limit]
	need := l.lo + ahead + cost - l.ceiling
	if need <= 0 {
		return 0, false
	}
	tiles := w.cover(limit)
	if l.lo != l.hi {
		// Without the bucket at the edge it is too much already, and that bucket
		// leaves first.
		tiles = Cover{l.span.tiles[0]}
		tiles[0].First++
	}
	q := search{of: w, limit: limit, lacks: need, need: need, tiles: slices.Collect(tiles.Buckets())}
	q.found = q.pick()
	w.searches = append(w.searches, q)
	return len(w.searches) - 1, true
}

// searches are those of one counter.
type searches []search

// advance takes all of them as far as values are known, and wants what they need.
func (all searches) advance(k *known) {
	for i := range all {
		all[i].advance()
	}
	for i := range all {
		for _, bucket := range all[i].wanted {
			k.want(bucket)
		}
	}
}

// end has all of them go no further.
func (all searches) end() {
	for i := range all {
		all[i].over = true
	}
}

// advance goes down as far as values are known.
func (q *search) advance() {
	q.wanted = nil
	for !q.over {
		if q.found.Level == q.of.finest || q.of.leaves(q.limit, q.found.First()) == q.of.leaves(q.limit, q.found.Last()) {
			q.over = true
			return
		}
		q.tiles = bucketsWithin(q.found.Level-1, Window{q.found.First(), q.found.Last()})
		if slices.ContainsFunc(q.tiles, func(b Bucket) bool { return !q.of.knows(b) }) {
			q.wanted = q.tiles
			return
		}
		q.need -= q.of.lost(q.found, q.tiles)
		q.found = q.pick()
	}
}

// leaves returns the second in which events of that second have left the window of the limit.
func (w *windows) leaves(limit int, second int64) int64 {
	_, last := w.all[limit].of.Around(second)
	return last + 1
}

// lost returns what a bucket held and its children, which were read after it, do not: that has been
// rolled back since, or was lost. When the first of them has left the window it counts no more, for
// then they count in its place.
func (w *windows) lost(b Bucket, children []Bucket) int64 {
	gap := w.value(b)
	for _, child := range children {
		gap -= w.value(child)
	}
	return max(gap, 0)
}

// pick returns the tile in which the last of what has to leave lies.
func (q *search) pick() Bucket {
	best := q.tiles[0]
	for _, tile := range q.tiles {
		value := q.of.value(tile)
		if value >= q.need {
			return tile
		}
		if value > 0 {
			best = tile
			q.need -= value
		}
	}
	return best
}

// Wait returns how long after the stamp the window has left behind what has to leave. Where the
// found bucket is not of the finest level yet, that lies no later in it than the stamp.
func (w *windows) Wait(number int) time.Duration {
	q := &w.searches[number]
	last, stamp := q.found.Last(), w.stamp
	if q.found.Level > w.finest {
		last = min(last, BucketAt(w.finest, max(stamp, q.found.First())).Last())
	}
	return time.Duration(max(q.of.leaves(q.limit, last)-stamp, 1)) * time.Second
}
