package hierarchy

import (
	"time"

	"github.com/counterd/counterd/events"
)

// A view is the buckets by which hits of one second are counted in one window.
//
// Each hit adds to its rank bucket, among others, and reads the other buckets after its adds. The values that the adds
// to the rank bucket return order the hits. So in which buckets a hit counts must depend on the window and the second
// of the hit alone: otherwise two hits could each miss the other.
type view struct {
	windows events.Windows
	rank    Bucket
	runs    [maxRuns]BucketRange // the buckets in the order of time
	n       int                  // number of runs
	edge    Window               // the part of the first bucket that is in the window
	partial bool                 // the first bucket begins before the window
	split   bool                 // the edge was read
}

// newView returns the view of hits of the second, on a counter with that finest level. It includes buckets up to the
// second ahead, in which another clock may have counted hits that share the window.
func newView(w events.Windows, second, ahead int64, finest Level) view {
	first, last := w.Around(second)
	rank := max(finest, RankLevel(time.Duration(w.Length)*time.Second))
	ahead = min(ahead, last)
	v := view{windows: w, edge: Window{First: BucketAt(finest, first).First()}}
	if w.Algorithm.Tiles {
		v.setTiled(Window{first, last}, second, ahead, finest, rank)
		return v
	}
	v.rank = BucketAt(rank, second)
	v.runs[0], v.n = runOver(rank, Window{v.edge.First, ahead}), 1
	v.edge.Last = v.first().Last()
	v.partial = v.first().First() < v.edge.First
	return v
}

// setTiled takes the buckets of the cover of a fixed window, up to the second ahead. No bucket may overlap two windows.
func (v *view) setTiled(w Window, second, ahead int64, finest, coarsest Level) {
	for _, run := range appendCover(v.runs[:0], w, finest, coarsest) {
		latest := run.Level.Of(ahead)
		if run.First > latest {
			break
		}
		run.Last = min(run.Last, latest)
		v.runs[v.n] = run
		v.n++
		if b := BucketAt(run.Level, second); run.First <= b.Number && b.Number <= run.Last {
			v.rank = b
		}
	}
}

// buckets returns the buckets of the view.
func (v *view) buckets() Cover { return v.runs[:v.n] }

// first returns the oldest bucket.
func (v *view) first() Bucket { return Bucket{v.runs[0].Level, v.runs[0].First} }

// later returns the buckets after the oldest one, of a view that is partial.
func (v *view) later() BucketRange {
	run := v.runs[0]
	run.First++
	return run
}

// appendEdge appends the finer buckets that tile the edge.
func (v *view) appendEdge(cover Cover, finest Level) Cover {
	return appendCover(cover, v.edge, finest, v.first().Level-1)
}

// appendTiles appends the buckets that tile the window exactly.
func (v *view) appendTiles(cover Cover, finest Level) Cover {
	if !v.partial {
		return append(cover, v.buckets()...)
	}
	return append(v.appendEdge(cover, finest), v.later())
}

// bounds returns the least and the most that the window may hold. They are equal if the window begins with a bucket, or
// its edge was read.
func (v *view) bounds(counts counts, finest Level) (least, most int64) {
	if v.partial && !v.split {
		most = counts.sum(v.buckets())
		return most - counts[v.first().ID()], most
	}
	var tiles [2 * maxRuns]BucketRange
	most = counts.sum(v.appendTiles(tiles[:0], finest))
	return most, most
}

// leaves returns the second from which events of the given second are not in the window any more.
func (v *view) leaves(second int64) int64 {
	_, last := v.windows.Around(second)
	return last + 1
}

// leavesTogether reports whether all events of the bucket leave the window in one second.
func (v *view) leavesTogether(b Bucket) bool { return v.leaves(b.First()) == v.leaves(b.Last()) }

// counts are counts of buckets, by their items.
type counts map[uint64]int64

// sum returns the sum of the buckets. Those that are not known count 0.
func (c counts) sum(cover Cover) (total int64) {
	for b := range cover.Buckets() {
		total += c[b.ID()]
	}
	return total
}

// has reports whether the counts of all buckets are known.
func (c counts) has(cover Cover) bool {
	for b := range cover.Buckets() {
		if _, known := c[b.ID()]; !known {
			return false
		}
	}
	return true
}

// lost returns how many events of a bucket its children lack: they were undone in between, or lost. They count until the
// first child has left.
func (c counts) lost(b Bucket) int64 { return max(c[b.ID()]-c.sum(b.children()), 0) }
