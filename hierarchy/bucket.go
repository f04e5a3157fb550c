package hierarchy

import "time"

// Bucket is one aligned interval of a level. Number counts the intervals of the
// level since the Unix epoch, in UTC.
type Bucket struct {
	Level  Level
	Number int64
}

// BucketAt returns the bucket of the level that holds the Unix second.
func BucketAt(l Level, second int64) Bucket {
	return Bucket{l, floorDiv(second, l.Seconds())}
}

// First returns the first Unix second in the bucket.
func (b Bucket) First() int64 { return b.Number * b.Level.Seconds() }

// Last returns the last Unix second in the bucket.
func (b Bucket) Last() int64 { return b.First() + b.Level.Seconds() - 1 }

// levelShift leaves the number of a second's bucket room until the year 10680.
const levelShift = 38

// ID returns the number by which a Store knows the bucket among those of its
// counter. It is below 1<<40.
func (b Bucket) ID() uint64 {
	return uint64(b.Level)<<levelShift | uint64(b.Number)&(1<<levelShift-1)
}

// bucketOf undoes Bucket.ID.
func bucketOf(id uint64) Bucket {
	return Bucket{Level(id >> levelShift), int64(id & (1<<levelShift - 1))}
}

// Expires returns the Unix second from which the bucket may be gone: its end,
// and after that the retention of its counter, its own length, the grace and a
// second. The length is for a bucket that straddles the far edge of a window,
// the grace for clocks that differ, the second for stores that count time in
// whole ones.
func (b Bucket) Expires(retention, grace time.Duration) int64 {
	return b.Last() + 1 + ceilSeconds(retention) + b.Level.Seconds() + ceilSeconds(grace) + 1
}

// openSeconds returns for how many seconds a bucket that has ended may still be
// changed by hits: twice the grace. After that it is closed.
func openSeconds(grace time.Duration) int64 { return ceilSeconds(2 * grace) }

func ceilSeconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}

// floorDiv returns a/b rounded down, for b above 0.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
