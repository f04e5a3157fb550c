package hierarchy

import (
	"iter"
	"slices"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

// Level is a step of the hierarchy.
type Level = engine.Level

// The levels, and their number.
const (
	Second = engine.Second
	Minute = engine.Minute
	Hour   = engine.Hour
	Day    = engine.Day
	Levels = engine.Levels
)

// RankLevel returns the coarsest level that is not longer than the window.
// Windows shorter than a second have the level Second.
func RankLevel(window time.Duration) Level {
	rank := Second
	for l := Minute; l <= Day; l++ {
		if l.Seconds() <= int64(window/time.Second) {
			rank = l
		}
	}
	return rank
}

// Bucket is one aligned interval of a level. Number counts the intervals of the
// level since the Unix epoch, in UTC.
type Bucket struct {
	Level  Level
	Number int64
}

// BucketAt returns the bucket of the level that holds the Unix second.
func BucketAt(l Level, second int64) Bucket {
	return Bucket{l, l.Of(second)}
}

// First returns the first Unix second in the bucket.
func (b Bucket) First() int64 { return b.Number * b.Level.Seconds() }

// Last returns the last Unix second in the bucket.
func (b Bucket) Last() int64 { return b.First() + b.Level.Seconds() - 1 }

// ID returns the item by which a Store knows the bucket among those of its counter. The
// number of a second's bucket has room until the year 3058.
func (b Bucket) ID() uint64 { return store.Item(uint8(b.Level), b.Number) }

// bucketOf undoes Bucket.ID.
func bucketOf(id uint64) Bucket {
	return Bucket{Level(store.ItemLevel(id)), store.ItemNumber(id)}
}

// Expires returns the Unix second from which the bucket may be gone: its end,
// and after that the retention of its counter, its own length, the grace and a
// second. The length is for a bucket that straddles the far edge of a window,
// the grace for clocks that differ, the second for stores that count time in
// whole ones.
func (b Bucket) Expires(retention, grace time.Duration) int64 {
	return b.Last() + 1 + engine.CeilSeconds(retention) + b.Level.Seconds() + engine.CeilSeconds(grace) + 1
}

// openSeconds returns for how many seconds a bucket that has ended may still be
// changed by hits: twice the grace. After that it is closed.
func openSeconds(grace time.Duration) int64 { return engine.CeilSeconds(2 * grace) }

// floorDiv returns a/b rounded down, for b above 0.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

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
	return appendCover(make(Cover, 0, maxTiles), w, finest, coarsest)
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

// span is what a limit looks at: the buckets that touch its window, the time ahead included, and how
// the oldest of them lies to the window. If the window slides, they are of its rank level. Windows
// that tile the time are tiled by the cover of the whole window, as far as the time ahead.
//
// In which of these buckets an event counts depends on the window and on the second of the event
// alone, never on the moment: what the adds to them return puts the hits in one order.
type span struct {
	rank  Level // of the bucket that the hit adds to
	head  int64 // its number
	tiles [maxTiles]BucketRange
	rows  int    // how many of the tiles are in use; if the window slides, one of the rank level
	top   Level  // the coarsest that tiles the window
	edge  Window // the part of the oldest bucket that is in the window
	whole bool   // that is all of it
}

// maxTiles is the most runs of a cover.
const maxTiles = 2*Levels - 1

// spanOf returns the span of the window for hits of the second now, on a counter whose finest level
// is given. It reaches ahead of now, for hits that clocks which are ahead have stamped.
func spanOf(w events.Windows, now int64, finest Level, ahead int64) span {
	first, last := w.Around(now)
	s := span{top: max(finest, RankLevel(time.Duration(w.Length)*time.Second))}
	s.edge.First, ahead = BucketAt(finest, first).First(), min(last, now+ahead)
	if w.Algorithm.Tiles {
		s.tile(Window{first, last}, now, finest, ahead)
		return s
	}
	s.rank, s.head, s.rows = s.top, BucketAt(s.top, now).Number, 1
	s.tiles[0] = runWithin(s.rank, Window{s.edge.First, ahead})
	oldest := Bucket{s.rank, s.tiles[0].First}
	s.edge.Last, s.whole = oldest.Last(), oldest.First() == s.edge.First
	return s
}

// tile takes of the window's cover the buckets that begin no later than the second ahead.
func (s *span) tile(w Window, now int64, finest Level, ahead int64) {
	s.whole = true
	for _, run := range appendCover(s.tiles[:0], w, finest, s.top) {
		ends := BucketAt(run.Level, ahead).Number
		if run.First > ends {
			break
		}
		run.Last = min(run.Last, ends)
		s.tiles[s.rows] = run
		s.rows++
		if head := BucketAt(run.Level, now).Number; run.First <= head && head <= run.Last {
			s.rank, s.head = run.Level, head
		}
	}
}

// row returns the buckets of the span.
func (s *span) row() Cover { return s.tiles[:s.rows] }

// others yields the buckets of the row but the head: what a hit has to read.
func (s *span) others(yield func(Bucket) bool) {
	for b := range s.row().Buckets() {
		if b != (Bucket{s.rank, s.head}) && !yield(b) {
			return
		}
	}
}

// split appends the finer buckets that tile the edge.
func (s *span) split(cover Cover, finest Level) Cover {
	return appendCover(cover, s.edge, finest, s.rank-1)
}

// cover appends the buckets that tile the window and the time ahead exactly, of
// no coarser level than the top.
func (s *span) cover(cover Cover, finest Level) Cover {
	if s.whole {
		return append(cover, s.row()...)
	}
	row := s.tiles[0]
	return append(s.split(cover, finest), BucketRange{s.rank, row.First + 1, row.Last})
}

// closed appends the buckets that tile the part of the window that buckets hold which end
// before that second.
func (s *span) closed(cover Cover, finest Level, before int64) Cover {
	return appendCover(cover, Window{s.edge.First, BucketAt(finest, before).First() - 1}, finest, s.top)
}

// levels returns the levels that are written for a counter: from its precision
// up to the rank level of its retention.
func levels(counter events.Counter) (finest, coarsest Level) {
	finest = RankLevel(counter.Precision.Length())
	return finest, max(finest, RankLevel(counter.Remembered()))
}
