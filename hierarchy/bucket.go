package hierarchy

import (
	"fmt"
	"strings"
	"time"

	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/store"
)

// Level is a step of the hierarchy. Levels are ordered, the finest first.
type Level uint8

// The levels. Each one's length is a multiple of the length of the one before.
const (
	Second Level = iota
	Minute
	Hour
	Day
)

// Levels is the number of levels.
const Levels = 4

var (
	levelSeconds = [Levels]int64{1, 60, 3600, 86400}
	levelNames   = [Levels]string{"second", "minute", "hour", "day"}
)

// Seconds returns the length of the level's buckets in seconds.
func (l Level) Seconds() int64 { return levelSeconds[l] }

// String returns second, minute, hour or day.
func (l Level) String() string { return levelNames[l] }

// ParseLevel reads what String writes.
func ParseLevel(s string) (Level, error) {
	for l, name := range levelNames {
		if s == name {
			return Level(l), nil
		}
	}
	return 0, fmt.Errorf("hierarchy: a level is one of %s", strings.Join(levelNames[:], ", "))
}

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
	return Bucket{l, floorDiv(second, l.Seconds())}
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
