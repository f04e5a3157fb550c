// Package counted counts what is asked of a store.
package counted

import (
	"context"
	"sync/atomic"

	"github.com/counterd/counterd/store"
)

// Counts are what was asked of a store.
type Counts struct {
	Trips, Adds, Reads atomic.Int64
}

// Store counts what is asked of the store behind it, whatever comes of it. A rollback and a
// reset are trips too; what they write is neither added nor read.
type Store struct {
	store.Store
	Counts Counts
}

// Do counts the round trips.
func (s *Store) Do(ctx context.Context, ops ...*store.Op) {
	for _, op := range ops {
		if op.Kind() == store.Hint {
			continue
		}
		s.Counts.Trips.Add(1)
		s.Counts.Reads.Add(int64(len(op.Reads)))
		if op.Kind() == store.Add {
			s.Counts.Adds.Add(int64(len(op.Writes)))
		}
	}
	s.Store.Do(ctx, ops...)
}
