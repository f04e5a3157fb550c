package hierarchy

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// trip is the memory of one exchange with a store, used again by later ones.
type trip struct {
	adds    []uint64
	expires []int64
	reads   []uint64
	values  []int64
}

var trips = sync.Pool{New: func() any { return new(trip) }}

func newTrip() *trip { return trips.Get().(*trip) }

func (t *trip) free() {
	t.adds, t.expires, t.reads = t.adds[:0], t.expires[:0], t.reads[:0]
	trips.Put(t)
}

// make makes the exchange. After it, values holds those of the adds and then of
// the reads. It returns how many adds were acknowledged.
func (t *trip) make(ctx context.Context, store Store, counter string, by int64) (landed int, err error) {
	t.values = slices.Grow(t.values[:0], len(t.adds)+len(t.reads))[:len(t.adds)+len(t.reads)]
	landed, err = store.Trip(ctx, counter, by, t.adds, t.expires, t.reads, t.values)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrStore, err)
	}
	return landed, err
}
