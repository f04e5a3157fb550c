package hierarchy

import (
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

// Layout is how counters are kept in buckets, for the repair of their replicas, which knows
// items alone. Grace is that of the Counters.
type Layout struct{ Grace time.Duration }

// Seconds returns the length of the level's buckets.
func (Layout) Seconds(level uint8) int64 { return Level(level).Seconds() }

// Expires returns the Unix second from which the bucket of that ID may be gone, of a counter
// with that retention.
func (l Layout) Expires(bucket uint64, retention time.Duration) int64 {
	return bucketOf(bucket).Expires(retention, l.Grace)
}

// IsBucket reports whether the item is a bucket, IsEpoch whether it is the epoch of a counter.
func IsBucket(item uint64) bool { return store.ItemLevel(item) <= uint8(Day) }
func IsEpoch(item uint64) bool  { return item == epochItem }

// IsReceipt reports whether the item is one of bytes that is written once, with what a reservation
// was settled with.
func IsReceipt(item uint64) bool { return store.ItemLevel(item) == receiptLevel }

// OnUse returns an OnUse for a Config. It calls note with the levels of the
// counter's buckets and its retention.
func (Layout) OnUse(note func(id string, finest, coarsest uint8, retention time.Duration, now time.Time)) func(id string, counter events.Counter, now time.Time) {
	return func(id string, counter events.Counter, now time.Time) {
		finest, coarsest := levels(counter)
		note(id, uint8(finest), uint8(coarsest), counter.Remembered(), now)
	}
}

// itemBytes is the memory of a bucket in Memcached: its smallest chunk.
const itemBytes = 96

// SpreadBytes returns the memory of a counter's buckets in Memcached if that many events come at equal distances in the
// time for which they are remembered.
func SpreadBytes(counter events.Counter, hits int64, grace time.Duration) (bytes int64) {
	for b := range BucketsOf(counter, 0) {
		life := b.Expires(counter.Remembered(), grace)
		made := min(hits, 1<<31)*life/engine.CeilSeconds(counter.Remembered()) + 1
		bytes += min(made, life/b.Level.Seconds()+1) * itemBytes
	}
	return bytes
}
