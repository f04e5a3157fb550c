package plan

import (
	"context"
	"slices"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

// levelsOf returns the finest and the coarsest level of the counter's buckets.
func levelsOf(counter events.Counter) (finest, coarsest hierarchy.Level) {
	buckets := slices.Collect(hierarchy.BucketsOf(counter, 0))
	return buckets[0].Level, buckets[len(buckets)-1].Level
}

// farReads is the average number of buckets, of each level, that a hit far from its limits reads beside the buckets to
// which it adds.
type farReads struct {
	// closed are buckets that no hit changes any more. A process caches them for a second.
	closed [hierarchy.Levels]float64
	open   [hierarchy.Levels]float64 // ended just now, or ahead
}

// farReadsOf returns the reads of a hit on the counter with those limits, over all moments of a day, and over a month of
// days if there is a calendar. Limits of logs are taken for sliding windows.
func farReadsOf(counter events.Counter, limits []events.Limit, grace time.Duration) farReads {
	const day, from = 86400, 20_454 * 86400 // 2026, with the offsets that zones have now
	step := int64(1)
	tally := limiter.Tally{ID: "c", Counter: counter, Adds: []limiter.Addition{{Cost: 1}}}
	for _, limit := range limits {
		if limit.Windows().Algorithm.Log {
			limit.Algorithm = events.DefaultAlgorithm
		}
		if limit.Calendar != nil {
			step = 32
		}
		tally.Limits = append(tally.Limits, limiter.Limit{Limit: limit, Ceiling: 1})
	}
	reads := readsStore{closedSeconds: engine.CeilSeconds(2 * grace)}
	session := hierarchy.NewCounters(hierarchy.Config{Store: &reads, Grace: grace, CacheBytes: -1}).NewSession()
	for now := int64(from); now < from+day*step; now += step {
		reads.now = now
		session.Add(context.Background(), limiter.Moment{Time: time.Unix(now, 0), Second: now, Latest: now}, []*limiter.Tally{&tally})
	}
	for l := range hierarchy.Levels {
		reads.far.closed[l] /= day
		reads.far.open[l] /= day
	}
	return reads.far
}

// readsStore is an empty store that counts what is read.
type readsStore struct {
	store.Store
	now, closedSeconds int64
	far                farReads
}

func (s *readsStore) Capabilities() store.Capabilities { return store.Capabilities{} }

func (s *readsStore) Do(_ context.Context, ops ...*store.Op) {
	for _, op := range ops {
		for i := range op.Writes {
			op.Writes[i].Result = op.Writes[i].By
		}
		for i := range op.Reads {
			bucket := hierarchy.Bucket{Level: hierarchy.Level(store.ItemLevel(op.Reads[i].Item)), Number: store.ItemNumber(op.Reads[i].Item)}
			if bucket.Last() < s.now-s.closedSeconds {
				s.far.closed[bucket.Level]++
			} else {
				s.far.open[bucket.Level]++
			}
		}
		op.Receipt = store.Acknowledged(len(op.Writes))
	}
}
