package repair

import (
	"time"

	"github.com/counterd/counterd/internal/store"
)

// Layout is how an engine keeps a counter: in items of some levels, each a bucket. The buckets of
// a level are aligned intervals of Unix time, as long as a whole number of those of the level
// below, and hold what was added to the buckets within them. Their numbers, as store.Item has
// them, count the intervals since the epoch.
type Layout interface {
	// Seconds returns the length of the level's buckets.
	Seconds(level uint8) int64
	// Expires returns the Unix second from which the item, of a counter with that retention,
	// may be gone.
	Expires(item uint64, retention time.Duration) int64
}

// bucket is an item of a Layout.
type bucket struct {
	level  uint8
	number int64
}

func (b bucket) item() uint64 { return store.Item(b.level, b.number) }

// buckets are adjacent buckets of one level, from number first to last.
type buckets struct {
	level       uint8
	first, last int64
}

func (r buckets) len() int { return int(r.last - r.first + 1) }

// span is an interval of Unix seconds, both ends included.
type span struct{ first, last int64 }

// arithmetic is what follows from a Layout.
type arithmetic struct{ Layout }

// at returns the bucket of the level that holds the second, which is not before 1970.
func (a arithmetic) at(level uint8, second int64) bucket {
	return bucket{level, second / a.Seconds(level)}
}

// spanOf returns the seconds of adjacent buckets.
func (a arithmetic) spanOf(r buckets) span {
	length := a.Seconds(r.level)
	return span{r.first * length, (r.last+1)*length - 1}
}

// parent returns the bucket of the next level that holds the bucket.
func (a arithmetic) parent(b bucket) bucket {
	return a.at(b.level+1, b.number*a.Seconds(b.level))
}

// within returns the buckets of the level that touch the span.
func (a arithmetic) within(level uint8, s span) buckets {
	return buckets{level, a.at(level, s.first).number, a.at(level, s.last).number}
}

// children returns the buckets of the level below that are in the bucket.
func (a arithmetic) children(b bucket) buckets {
	return a.within(b.level-1, a.spanOf(buckets{b.level, b.number, b.number}))
}

// appendAll appends the buckets one by one.
func (r buckets) appendAll(list []bucket) []bucket {
	for n := r.first; n <= r.last; n++ {
		list = append(list, bucket{r.level, n})
	}
	return list
}

// appendItems appends the items of the buckets.
func (r buckets) appendItems(items []uint64) []uint64 {
	for n := r.first; n <= r.last; n++ {
		items = append(items, bucket{r.level, n}.item())
	}
	return items
}

func ceilSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
