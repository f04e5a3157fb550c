package hierarchy

import (
	"slices"
	"time"

	"github.com/counterd/counterd/engine"
)

// search looks for the first second in which a hit fits a limit, if nothing else
// comes: when so many of those events have left the window, the oldest first, that
// there is room for its cost.
//
// It goes down the hierarchy, from the buckets that tile the window to that one
// in which the last of those events lies, its children, and theirs. Where it is cut short
// that event lies no later than the hit, and so the wait is no longer than the window.
type search struct {
	session *session
	limit   int
	need    int64    // how much has to leave
	tiles   []Bucket // in the order of time, in which it has to be found
	found   Bucket   // the best so far: what has to leave lies no later than its end
	wanted  []Bucket // that it has to know to go on
	over    bool     // it goes no further
}

// Search starts a search on what is known of the counter.
func (s *session) Search(limit int, ahead, cost int64) (int, bool) {
	w := &s.windows[limit]
	need := w.lo + ahead + cost - w.ceiling
	if need <= 0 {
		return 0, false
	}
	tiles := Cover{w.span.row}
	if w.lo == w.hi {
		tiles = w.span.cover(nil, s.finest)
	} else {
		// Without the bucket at the edge it is too much already, and that bucket
		// leaves first.
		tiles[0].First++
	}
	q := search{session: s, limit: limit, need: need, tiles: slices.Collect(tiles.Buckets())}
	q.found = q.pick()
	s.step = searching
	s.searches = append(s.searches, q)
	return len(s.searches) - 1, true
}

// advance goes down as far as values are known.
func (q *search) advance() {
	q.wanted = nil
	for !q.over {
		if q.found.Level == q.session.finest || q.leaves(q.found.First()) == q.leaves(q.found.Last()) {
			q.over = true
			return
		}
		q.tiles = bucketsWithin(q.found.Level-1, Window{q.found.First(), q.found.Last()})
		if slices.ContainsFunc(q.tiles, func(b Bucket) bool { return !q.session.knows(b) }) {
			q.wanted = q.tiles
			return
		}
		q.dropLost()
		q.found = q.pick()
	}
}

// leaves returns the second in which events of that second have left the window.
func (q *search) leaves(second int64) int64 {
	w := &q.session.windows[q.limit]
	_, last := w.algorithm.Around(second, int64(w.length/time.Second))
	return last + 1
}

// dropLost drops what the bucket that was found held and its children, which were read
// after it, do not: that has been rolled back since, or was lost. When the first of them has
// left the window it counts no more, for then they count in its place.
func (q *search) dropLost() {
	gap := q.session.value(q.found)
	for _, tile := range q.tiles {
		gap -= q.session.value(tile)
	}
	q.need -= max(gap, 0)
}

// pick returns the tile in which the last of what has to leave lies.
func (q *search) pick() Bucket {
	best := q.tiles[0]
	for _, tile := range q.tiles {
		value := q.session.value(tile)
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
func (s *session) Wait(number int) engine.Wait {
	q := &s.searches[number]
	last, stamp := q.found.Last(), s.moment.Stamp
	if q.found.Level > s.finest {
		last = min(last, BucketAt(s.finest, max(stamp, q.found.First())).Last())
	}
	return engine.Wait(max(q.leaves(last)-stamp, 1))
}
