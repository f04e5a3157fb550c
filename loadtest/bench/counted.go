package bench

import (
	"context"
	"sync/atomic"

	"github.com/counterd/counterd/store"
)

// storeCounts are what was asked of a store.
type storeCounts struct {
	trips, adds, reads atomic.Int64
}

// countedStore counts what is asked of the store behind it, whatever comes of it. A rollback and a
// reset are trips too; what they write is neither added nor read.
type countedStore struct {
	store.Store
	counts storeCounts
}

// Do counts the round trips.
func (s *countedStore) Do(ctx context.Context, ops ...*store.Op) {
	for _, op := range ops {
		if op.Kind() == store.Hint {
			continue
		}
		s.counts.trips.Add(1)
		s.counts.reads.Add(int64(len(op.Reads)))
		if op.Kind() == store.Add {
			s.counts.adds.Add(int64(len(op.Writes)))
		}
	}
	s.Store.Do(ctx, ops...)
}
