package bench

import (
	"context"
	"sync/atomic"

	"github.com/counterd/counterd/hierarchy"
)

// counted is what was asked of a store.
type counted struct {
	trips, adds, reads atomic.Int64
}

// countingStore counts what is asked of the store behind it. A take-back is a trip
// too; what it subtracts is neither added nor read. It has the methods of a Starter and
// no others: should the engine come to look for more in a store, they belong here too,
// or what is measured is not what runs.
type countingStore struct {
	hierarchy.Starter
	counted counted
}

// Trip counts a trip, whatever comes of it.
func (s *countingStore) Trip(ctx context.Context, counter string, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) (int, error) {
	s.count(adds, reads)
	return s.Starter.Trip(ctx, counter, by, adds, expires, reads, values)
}

// Start counts a trip.
func (s *countingStore) Start(ctx context.Context, counter string, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) func() (int, error) {
	s.count(adds, reads)
	return s.Starter.Start(ctx, counter, by, adds, expires, reads, values)
}

func (s *countingStore) count(adds, reads []uint64) {
	s.counted.trips.Add(1)
	s.counted.adds.Add(int64(len(adds)))
	s.counted.reads.Add(int64(len(reads)))
}

// TakeBack counts a trip.
func (s *countingStore) TakeBack(ctx context.Context, counter string, by int64, adds []uint64, landed int) error {
	s.counted.trips.Add(1)
	return s.Starter.TakeBack(ctx, counter, by, adds, landed)
}

// Delete counts a trip.
func (s *countingStore) Delete(ctx context.Context, counter string, buckets []uint64) error {
	s.counted.trips.Add(1)
	return s.Starter.Delete(ctx, counter, buckets)
}
