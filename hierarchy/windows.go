package hierarchy

import (
	"time"

	"github.com/counterd/counterd/algorithm"
	"github.com/counterd/counterd/engine"
)

// windows are the limits of a counter, and what is known of their windows: the values of buckets
// without what the batch added.
type windows struct {
	reader
	all      []limitWindow
	searches searches
	finest   Level
	coarsest Level
	stamp    int64
	tiles    Cover // memory for a cover
}

// limitWindow is one limit of a counter, and what its window holds.
type limitWindow struct {
	algorithm algorithm.Algorithm
	length    time.Duration
	ceiling   int64
	span      span
	lo, hi    int64 // what others hold of the window: at least, and at most
}

func (w *windows) end() {
	clear(w.searches)
	w.all, w.searches = w.all[:0], w.searches[:0]
}

// wantCovers wants the buckets that the exact sums of the limits need.
func (w *windows) wantCovers() {
	for i := range w.all {
		w.wantAll(w.cover(i))
	}
}

// cover returns the buckets that tile the limit's window exactly, until the next use of tiles.
func (w *windows) cover(limit int) Cover {
	w.tiles = w.all[limit].span.cover(w.tiles[:0], w.finest)
	return w.tiles
}

// wantRows wants what bounds the limits, beside what the adds return.
func (w *windows) wantRows() {
	for i := range w.all {
		for bucket := range w.all[i].span.others {
			w.want(bucket)
		}
	}
}

// isOpen reports whether some limit leaves open which hits of so much cost together fit.
func (w *windows) isOpen(most int64) bool {
	for i := range w.all {
		if w.all[i].isOpen(most) {
			return true
		}
	}
	return false
}

// isOpen reports whether some hits of so much cost together may fit and may not.
func (l *limitWindow) isOpen(most int64) bool {
	return l.lo < l.ceiling && l.hi+most > l.ceiling && l.lo != l.hi
}

// wantOpenEdges wants the buckets at the edges of the windows that are open.
func (w *windows) wantOpenEdges(most int64) {
	for i := range w.all {
		if l := &w.all[i]; l.isOpen(most) {
			w.tiles = l.span.split(w.tiles[:0], w.finest)
			w.wantAll(w.tiles)
		}
	}
}

// bound sets the bounds of all limits: the sum over the row, which is no less than what is in
// the window, and the sum without the oldest bucket where only a part of it is in the window,
// which is no more. They are equal where the sum is exact.
func (w *windows) bound() {
	for i := range w.all {
		l := &w.all[i]
		l.hi = 0
		for n := l.span.row.First; n <= l.span.row.Last; n++ {
			l.hi += w.value(Bucket{l.span.rank, n})
		}
		l.lo = l.hi
		if !l.span.whole {
			l.lo -= w.value(Bucket{l.span.rank, l.span.row.First})
		}
	}
}

// sum makes the sums of those limits exact whose edges are known.
func (w *windows) sum() {
	for i := range w.all {
		if sum, known := w.exact(w.cover(i)); known {
			w.all[i].lo, w.all[i].hi = sum, sum
		}
	}
}

// Standing returns whether the limit has room.
func (w *windows) Standing(limit int, ahead, cost int64) engine.Standing {
	l := &w.all[limit]
	count := l.hi + ahead
	return engine.Standing{Outcome: engine.OutcomeOf(count, cost, l.ceiling), Count: count, Exact: l.lo == l.hi}
}

// Span returns the first second of the window, rounded down to the counter's precision, and the
// rank level: the adds to it put hits in one order.
func (w *windows) Span(limit int) engine.Span {
	span := &w.all[limit].span
	return engine.Span{First: span.edge.First, Order: int(span.rank)}
}

// closedTiles returns the closed buckets that tile the limit's window.
func (w *windows) closedTiles(limit int) Cover {
	w.tiles = w.all[limit].span.closed(w.tiles[:0], w.finest, w.closed)
	return w.tiles
}

// Final returns what closed buckets hold: transient adds exist in open ones only.
func (w *windows) Final(limit int) int64 {
	sum, _ := w.exact(w.closedTiles(limit))
	return sum
}
