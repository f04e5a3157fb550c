// Package counted counts what is asked of a store.
package counted

import (
	"context"
	"sync/atomic"

	"github.com/counterd/counterd/hierarchy"
)

// Counts are what was asked of a store.
type Counts struct {
	Trips, Adds, Reads atomic.Int64
}

// Store counts what is asked of the store behind it. A take-back is a trip
// too; what it subtracts is neither added nor read. It has the methods of a Starter and
// no others: should the engine come to look for more in a store, they belong here too,
// or what is measured is not what runs.
type Store struct {
	hierarchy.Starter
	Counts Counts
}

// Trip counts a trip, whatever comes of it.
func (s *Store) Trip(ctx context.Context, counter string, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) (int, error) {
	s.count(adds, reads)
	return s.Starter.Trip(ctx, counter, by, adds, expires, reads, values)
}

// Start counts a trip.
func (s *Store) Start(ctx context.Context, counter string, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) func() (int, error) {
	s.count(adds, reads)
	return s.Starter.Start(ctx, counter, by, adds, expires, reads, values)
}

func (s *Store) count(adds, reads []uint64) {
	s.Counts.Trips.Add(1)
	s.Counts.Adds.Add(int64(len(adds)))
	s.Counts.Reads.Add(int64(len(reads)))
}

// RollBack counts a trip.
func (s *Store) RollBack(ctx context.Context, counter string, by int64, adds []uint64, landed int) error {
	s.Counts.Trips.Add(1)
	return s.Starter.RollBack(ctx, counter, by, adds, landed)
}

// Delete counts a trip.
func (s *Store) Delete(ctx context.Context, counter string, buckets []uint64) error {
	s.Counts.Trips.Add(1)
	return s.Starter.Delete(ctx, counter, buckets)
}
