package hierarchy

import (
	"iter"
	"slices"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

// A Level is a length of buckets.
type Level = engine.Level

// The levels, and their number. The length of each is a multiple of the one before.
const (
	Second = engine.Second
	Minute = engine.Minute
	Hour   = engine.Hour
	Day    = engine.Day
	Levels = engine.Levels
)

// RankLevel returns the coarsest level that is not longer than the duration, or Second.
func RankLevel(d time.Duration) Level {
	l := Day
	for l > Second && l.Seconds() > int64(d/time.Second) {
		l--
	}
	return l
}

// levels returns the levels of a counter: from its precision to the rank level of its retention.
func levels(counter events.Counter) (finest, coarsest Level) {
	finest = RankLevel(counter.Precision.Length())
	return finest, max(finest, RankLevel(counter.Remembered()))
}

// A Bucket is an interval of time whose events are counted in one item. Number counts the buckets of the level since
// the Unix epoch, in UTC.
type Bucket struct {
	Level  Level
	Number int64
}

// BucketAt returns the bucket of the level that contains the Unix second.
func BucketAt(l Level, second int64) Bucket { return Bucket{l, l.Of(second)} }

// BucketsOf yields the buckets to which an event in the Unix second is added, the finest first.
func BucketsOf(counter events.Counter, second int64) iter.Seq[Bucket] {
	return func(yield func(Bucket) bool) {
		finest, coarsest := levels(counter)
		for l := finest; l <= coarsest; l++ {
			if !yield(BucketAt(l, second)) {
				return
			}
		}
	}
}

// First returns the first Unix second of the bucket.
func (b Bucket) First() int64 { return b.Number * b.Level.Seconds() }

// Last returns the last Unix second of the bucket.
func (b Bucket) Last() int64 { return b.First() + b.Level.Seconds() - 1 }

// ID returns the number of the item that counts the bucket. The numbers of seconds suffice until the year 3058.
func (b Bucket) ID() uint64 { return store.Item(uint8(b.Level), b.Number) }

// bucketOf is the inverse of ID.
func bucketOf(item uint64) Bucket {
	return Bucket{Level(store.ItemLevel(item)), store.ItemNumber(item)}
}

// Expires returns the Unix second from which the bucket may be deleted: its end, plus the retention of its counter, its
// own length, the grace and a second. The length is for a bucket in which a window begins, the grace for clocks that
// differ, the second for stores that count time in whole seconds.
func (b Bucket) Expires(retention, grace time.Duration) int64 {
	return b.Last() + 1 + engine.CeilSeconds(retention) + b.Level.Seconds() + engine.CeilSeconds(grace) + 1
}

// children returns the buckets of the next finer level in the bucket.
func (b Bucket) children() Cover { return Cover{runOver(b.Level-1, Window{b.First(), b.Last()})} }

// openSeconds returns for how many seconds after its end hits may change a bucket. After that it is closed.
func openSeconds(grace time.Duration) int64 { return engine.CeilSeconds(2 * grace) }

// A Window is the Unix seconds from First to Last, both included.
type Window struct{ First, Last int64 }

// WindowAt returns the window of that length, in whole seconds, whose last second contains the moment.
func WindowAt(moment time.Time, length time.Duration) Window {
	last := moment.Unix()
	return Window{last - int64(length/time.Second) + 1, last}
}

// widen returns the smallest window of whole buckets of the level around w.
func (w Window) widen(l Level) Window {
	return Window{BucketAt(l, w.First).First(), BucketAt(l, w.Last).Last()}
}

// A BucketRange is consecutive buckets of one level, from number First to Last.
type BucketRange struct {
	Level       Level
	First, Last int64
}

// Len returns the number of buckets.
func (r BucketRange) Len() int { return int(r.Last - r.First + 1) }

// runOver returns the buckets of the level that overlap the window.
func runOver(l Level, w Window) BucketRange { return BucketRange{l, l.Of(w.First), l.Of(w.Last)} }

// bucketsOver returns the buckets of the level that overlap the window, one by one.
func bucketsOver(l Level, w Window) []Bucket { return slices.Collect(Cover{runOver(l, w)}.Buckets()) }

// A Cover is runs of buckets in the order of time, none of which overlap.
type Cover []BucketRange

// maxRuns is the most runs of a cover: two of each level but the coarsest.
const maxRuns = 2*Levels - 1

// CoverOf returns the fewest buckets of the levels that tile the window: every second of it is in exactly one of them. A
// window that does not consist of whole buckets of the finest level is widened until it does. A day that ends at any
// second takes at most 142 buckets: 60 seconds, 59 minutes and 23 hours.
func CoverOf(w Window, finest, coarsest Level) Cover {
	return appendCover(make(Cover, 0, maxRuns), w, finest, coarsest)
}

func appendCover(cover Cover, w Window, finest, coarsest Level) Cover {
	w = w.widen(finest)
	for w.First <= w.Last {
		l := finest
		for l < coarsest && startsIn(l+1, w.First, w.Last) {
			l++
		}
		// The run ends before the first bucket of the next level that fits, or with the last bucket of its own level
		// that does.
		end := l.Of(w.Last + 1)
		if l < coarsest {
			next := (l + 1).Of(w.First+(l+1).Seconds()-1) * (l + 1).Seconds()
			if startsIn(l+1, next, w.Last) {
				end = next / l.Seconds()
			}
		}
		cover = append(cover, BucketRange{l, w.First / l.Seconds(), end - 1})
		w.First = end * l.Seconds()
	}
	return cover
}

// startsIn reports whether a bucket of the level begins at first and ends by last.
func startsIn(l Level, first, last int64) bool {
	return first%l.Seconds() == 0 && first+l.Seconds()-1 <= last
}

// Len returns the number of buckets.
func (c Cover) Len() (n int) {
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
