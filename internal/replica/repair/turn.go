package repair

import (
	"context"

	"golang.org/x/sync/semaphore"
)

const (
	// atOnce is how many looks of a Repairer are under way at a time, and of how many counters
	// the buckets are being listed.
	atOnce = 4
	// heldEntries bounds the buckets under repair at a time, beside the ones that are being
	// listed; a counter is reckoned to have at least leastEntries.
	heldEntries  = 2 * maxEntries
	leastEntries = 256
)

// bounds are what all repairs share.
type bounds struct {
	listing *semaphore.Weighted
	room    *semaphore.Weighted // for entries
}

func newBounds() bounds {
	return bounds{semaphore.NewWeighted(atOnce), semaphore.NewWeighted(heldEntries)}
}

// turn is what one repair has of the bounds.
type turn struct {
	bounds
	lists bool  // it is its turn to list buckets
	held  int64 // entries for which there is room
}

// toList waits until the repair may list buckets. A repair that waits for that holds
// nothing: else all could wait for each other.
func (t *turn) toList(ctx context.Context) error {
	if t.lists {
		return nil
	}
	t.release()
	err := t.listing.Acquire(ctx, 1)
	t.lists = err == nil
	return err
}

// toHold waits until there is room for the listed entries, and lets others list then.
// Before that there is none, and lists of busy counters are long.
func (t *turn) toHold(ctx context.Context, entries int) error {
	want := min(max(int64(entries), leastEntries), heldEntries)
	if err := t.room.Acquire(ctx, want); err != nil {
		return err
	}
	t.release()
	t.held = want
	return nil
}

// release gives back what the repair has.
func (t *turn) release() {
	if t.lists {
		t.listing.Release(1)
	}
	t.room.Release(t.held)
	t.lists, t.held = false, 0
}
