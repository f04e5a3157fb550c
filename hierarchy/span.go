package hierarchy

import (
	"time"

	"github.com/counterd/counterd/algorithm"
)

// span is what a limit looks at: the buckets of its rank level that touch its
// window and the time ahead, and how the oldest of them lies to the window.
//
// The rank level depends on the window alone, never on the moment: what the add
// to it returns puts all hits on the counter in one order.
type span struct {
	rank  Level
	row   BucketRange // of the rank level, from the oldest that touches the window to the last ahead
	head  int64       // number of the bucket that the hit adds to
	edge  Window      // the part of the oldest bucket that is in the window
	whole bool        // that is all of it
}

// spanOf returns the span of a window of that length for hits of the second now, on a counter
// whose finest level is given. It reaches ahead of now, for hits that clocks which are
// ahead have stamped.
func spanOf(a algorithm.Algorithm, now int64, length time.Duration, finest Level, ahead int64) span {
	s := span{rank: max(finest, rankOf(a, length, finest))}
	first, last := a.Around(now, int64(length/time.Second))
	w := Window{BucketAt(finest, first).First(), min(last, now+ahead)}
	s.row = runWithin(s.rank, w)
	s.head = BucketAt(s.rank, now).Number
	oldest := Bucket{s.rank, s.row.First}
	s.edge = Window{w.First, oldest.Last()}
	s.whole = oldest.First() == w.First
	return s
}

// rankOf returns the rank level of a window of that length. Windows that tile the time begin and
// end with its buckets: what a hit adds to would else lie in two windows, and its part in one of
// them would have no order.
func rankOf(a algorithm.Algorithm, length time.Duration, finest Level) Level {
	rank, seconds := RankLevel(length), int64(length/time.Second)
	if first, last := a.Around(0, seconds); last-first+1 == seconds {
		for rank > finest && seconds%rank.Seconds() != 0 {
			rank--
		}
	}
	return rank
}

// others yields the buckets of the row but the head: what a hit has to read.
func (s *span) others(yield func(Bucket) bool) {
	for n := s.row.First; n <= s.row.Last; n++ {
		if n != s.head && !yield(Bucket{s.rank, n}) {
			return
		}
	}
}

// split appends the finer buckets that tile the edge.
func (s *span) split(cover Cover, finest Level) Cover {
	return appendCover(cover, s.edge, finest, s.rank-1)
}

// cover appends the buckets that tile the window and the time ahead exactly, of
// no coarser level than the rank.
func (s *span) cover(cover Cover, finest Level) Cover {
	if s.whole {
		return append(cover, s.row)
	}
	return append(s.split(cover, finest), BucketRange{s.rank, s.row.First + 1, s.row.Last})
}

// closed appends the buckets that tile the part of the window that buckets hold which end
// before that second.
func (s *span) closed(cover Cover, finest Level, before int64) Cover {
	return appendCover(cover, Window{s.edge.First, BucketAt(finest, before).First() - 1}, finest, s.rank)
}
