package hierarchy

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

const (
	tripDeletes  = 8               // buckets that one call of the store deletes, each perhaps in a round trip
	resetTrips   = 16              // calls of the store at a time
	resetTime    = 8 * time.Second // of a reset with its wait for a turn, less than clients wait
	resetsAtOnce = 4
	resetTries   = 3 // of a call of the store, since one of hundreds may be late
	resetPause   = 100 * time.Millisecond
	resetParents = 1440 // buckets whose children a reset deletes at a time, to bound its memory
	// recentSeconds is for how long, in steps of the precision, a reset looks for children of empty buckets: an increment
	// that was cut short, or that met a reset, may have left them.
	recentSeconds = 600
	// reservedSeconds is more than the longest reservation.
	reservedSeconds = 25 * 3600
)

// reset is the reset of one counter.
type reset struct {
	engine  *Counters
	counter events.Counter
	id      string
}

// Reset deletes the buckets of the counter. It finds them from the coarsest level down, and deletes them from the finest
// level up, so that the next reset finds all that an interrupted one leaves. Increments under way may stay in some
// levels; a later reset deletes them. See [engine.Counting].
func (c *Counters) Reset(ctx context.Context, counter events.Counter) error {
	ctx, cancel := context.WithTimeout(ctx, resetTime)
	defer cancel()
	select {
	case c.resets <- struct{}{}:
		defer func() { <-c.resets }()
	case <-ctx.Done():
		return engine.StoreError(ctx.Err())
	}
	r := reset{engine: c, counter: counter, id: counter.ID()}
	defer c.changed(r.id)
	// To delete the list needs all replicas: one that does not answer may have buckets that the others lack. The epoch
	// changes before the first bucket is deleted, for a reset that is cut short, and after the last one, for hits that
	// came in between.
	deleteList := func(ctx context.Context) error { return r.delete(ctx, []Bucket{bucketOf(openItem)}) }
	for _, step := range []func(context.Context) error{deleteList, r.beginEpoch, r.deleteBuckets, r.beginEpoch} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// beginEpoch changes the epoch of the counter: what hits before it have reserved is not there any more. The item
// outlives these reservations. If it holds no count, it is deleted.
func (r *reset) beginEpoch(ctx context.Context) error {
	expires := r.engine.base.Clock().Unix() + reservedSeconds + 2*engine.CeilSeconds(r.engine.base.Grace)
	err := r.do(ctx, &store.Op{Writes: []store.Write{{Kind: store.Add, Item: epochItem, By: 1 + rand.Int64N(1<<epochBits-1), Expires: expires}}})
	if errors.Is(err, engine.ErrBadCounter) {
		err = r.delete(ctx, []Bucket{bucketOf(epochItem)})
	}
	return err
}

// deleteBuckets deletes the buckets that count anything.
func (r *reset) deleteBuckets(ctx context.Context) error {
	finest, coarsest := levels(r.counter)
	now, grace := r.engine.base.Clock().Unix(), engine.CeilSeconds(r.engine.base.Grace)
	alive := func(l Level) Window { // buckets that may not have expired
		return Window{now - engine.CeilSeconds(r.counter.Remembered()) - 2*grace - 1 - 2*l.Seconds(), now + grace}
	}
	if finest == coarsest {
		return r.deleteFull(ctx, bucketsOver(finest, alive(finest)))
	}
	var full [Levels][]Bucket
	for l := coarsest; l > finest; l-- {
		var err error
		if full[l], err = r.full(ctx, bucketsOver(l, alive(l))); err != nil {
			return err
		}
	}
	recent := Window{max(alive(finest).First, now-recentSeconds*finest.Seconds()), now + grace}
	full[finest+1] = append(full[finest+1], bucketsOver(finest+1, recent)...)
	for parents := range slices.Chunk(full[finest+1], resetParents) {
		var children []Bucket
		for _, parent := range parents {
			children = slices.AppendSeq(children, parent.children().Buckets())
		}
		if err := r.deleteFull(ctx, children); err != nil {
			return err
		}
		// Not after the children of all: a reset that is repeated goes on here.
		if err := r.delete(ctx, parents); err != nil {
			return err
		}
	}
	for l := finest + 2; l <= coarsest; l++ {
		if err := r.delete(ctx, full[l]); err != nil {
			return err
		}
	}
	return nil
}

// deleteFull deletes those of the buckets that count anything.
func (r *reset) deleteFull(ctx context.Context, buckets []Bucket) error {
	full, err := r.full(ctx, buckets)
	if err != nil {
		return err
	}
	return r.delete(ctx, full)
}

// full returns those of the buckets that count anything, and all that are read with one that holds no count.
func (r *reset) full(ctx context.Context, buckets []Bucket) (full []Bucket, err error) {
	var mu sync.Mutex
	err = sideBySide(ctx, buckets, tripReads, func(ctx context.Context, chunk []Bucket) error {
		op := readOf(r.id, chunk)
		err := r.do(ctx, op)
		if err != nil && !errors.Is(err, engine.ErrBadCounter) {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for i, b := range chunk {
			if err != nil || op.Reads[i].Value != 0 {
				full = append(full, b)
			}
		}
		return nil
	})
	return full, err
}

func (r *reset) delete(ctx context.Context, buckets []Bucket) error {
	return sideBySide(ctx, buckets, tripDeletes, func(ctx context.Context, chunk []Bucket) error {
		var op store.Op
		for _, b := range chunk {
			op.Writes = append(op.Writes, store.Write{Kind: store.Delete, Item: b.ID()})
		}
		return r.do(ctx, &op)
	})
}

// sideBySide calls do for chunks of the buckets, several at a time.
func sideBySide(ctx context.Context, buckets []Bucket, size int, do func(context.Context, []Bucket) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(resetTrips)
	for chunk := range slices.Chunk(buckets, size) {
		group.Go(func() error { return do(ctx, chunk) })
	}
	return group.Wait()
}

// do makes a round trip, again if the store fails: to do it twice is to do it once.
func (r *reset) do(ctx context.Context, op *store.Op) error {
	for try := 1; ; try++ {
		op.Counter, op.Err = r.id, nil
		err := r.engine.do(ctx, op)
		if err == nil || errors.Is(err, engine.ErrBadCounter) || try == resetTries {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(resetPause):
		}
	}
}
