package hierarchy

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

const (
	// tripDeletes is the most buckets deleted in one call of the store, small
	// enough that a round trip for each fits the call's time; resetTrips is how
	// many calls of one Reset are under way at a time.
	tripDeletes = 8
	resetTrips  = 16

	// resetTime bounds a Reset, its wait for a turn included: resetsAtOnce go at a time. Each
	// call of the store has the store's own time, and is tried resetTries times, so that a few
	// late ones of hundreds fail no reset.
	resetTime    = 8 * time.Second // the Go client waits for 10
	resetsAtOnce = 4
	resetTries   = 3
	resetPause   = 100 * time.Millisecond

	// reservedSeconds is more than the longest reservation.
	reservedSeconds = 25 * 3600

	// recentSeconds is how many buckets of the finest level, up to now, a reset
	// reads whatever their parents say: an increment that was cut short, or that
	// met a reset, may have left a child alone.
	recentSeconds = 600
	// resetParents bounds the memory of a reset: the children of so many buckets
	// are looked at together.
	resetParents = 1440
)

// Reset forgets the counter. It looks for the buckets that there are from the top down: all
// of the coarser levels, and of the finest the children of the non-empty ones and all of
// the last minutes. It deletes them from the bottom up, so that whatever an interrupted
// reset leaves, the next one finds.
//
// Increments that are under way may stay, in some levels and not in others; a
// reset that comes after them forgets them. A reset takes 8 seconds at the most; four go
// at a time, and others wait for their turn meanwhile. An error wraps ErrStore; repeat the
// call then.
func (c *Counters) Reset(ctx context.Context, counter events.Counter) error {
	ctx, cancel := context.WithTimeout(ctx, resetTime)
	defer cancel()
	r := reset{c, counter}
	if err := r.await(ctx); err != nil {
		return err
	}
	defer func() { <-c.resets }()
	defer func() {
		c.cache.forget(counter.ID())
		c.base.Changes.Of(counter.ID()).Add(1)
	}()
	// Before the first bucket is deleted, for a reset that is cut short, and after the last one, for hits
	// that came meanwhile.
	if err := r.beginEpoch(ctx); err != nil {
		return err
	}
	if err := r.run(ctx); err != nil {
		return err
	}
	if err := r.delete(ctx, []Bucket{bucketOf(openItem)}); err != nil {
		return err
	}
	return r.beginEpoch(ctx)
}

// beginEpoch changes the epoch of the counter: what hits before it have reserved is not there any more. The item
// outlives these reservations. One that holds no count is deleted.
func (r *reset) beginEpoch(ctx context.Context) error {
	now, grace := r.of.now().Unix(), engine.CeilSeconds(r.of.grace)
	err := tryAgain(ctx, func() error {
		op := store.Op{Counter: r.counter.ID(), Writes: []store.Write{{
			Kind: store.Add, Item: epochItem, By: 1 + rand.Int64N(1<<epochBits-1), Expires: now + reservedSeconds + 2*grace,
		}}}
		r.of.store.Do(ctx, &op)
		if op.Err != nil {
			return engine.StoreError(op.Err)
		}
		return nil
	})
	if errors.Is(err, engine.ErrBadCounter) {
		err = r.delete(ctx, []Bucket{bucketOf(epochItem)})
	}
	return err
}

// await waits for a turn to reset a counter.
func (r *reset) await(ctx context.Context) error {
	select {
	case r.of.resets <- struct{}{}:
		return nil
	case <-ctx.Done():
		return engine.StoreError(ctx.Err())
	}
}

// reset is the reset of one counter.
type reset struct {
	of      *Counters
	counter events.Counter
}

func (r *reset) run(ctx context.Context) error {
	finest, coarsest := levels(r.counter)
	if r.of.replicated {
		// What is found there is deleted on every copy. Where nothing is, one that could not
		// be asked may have something.
		if err := r.delete(ctx, []Bucket{BucketAt(finest, r.of.now().Unix())}); err != nil {
			return err
		}
	}
	// Whatever can still be there, of each level, is not yet expired.
	now, grace := r.of.now().Unix(), engine.CeilSeconds(r.of.grace)
	alive := func(l Level) Window {
		return Window{now - engine.CeilSeconds(r.counter.Remembered()) - 2*grace - 1 - 2*l.Seconds(), now + grace}
	}
	var parents []Bucket  // of the level above the finest
	var coarse [][]Bucket // of it and those above, the coarsest first
	for l := coarsest; l > finest; l-- {
		found, err := r.nonEmpty(ctx, bucketsWithin(l, alive(l)))
		if err != nil {
			return err
		}
		coarse = append(coarse, found)
		parents = found
	}
	recent := alive(finest)
	if coarsest > finest {
		recent.First = max(recent.First, now-recentSeconds*finest.Seconds())
	}
	if err := r.deleteFull(ctx, bucketsWithin(finest, recent)); err != nil {
		return err
	}
	for some := range slices.Chunk(parents, resetParents) {
		var children []Bucket
		for _, parent := range some {
			children = append(children, bucketsWithin(finest, Window{parent.First(), parent.Last()})...)
		}
		if err := r.deleteFull(ctx, children); err != nil {
			return err
		}
		// Not after the children of all: a reset that is repeated goes on here.
		if err := r.delete(ctx, some); err != nil {
			return err
		}
	}
	for _, found := range slices.Backward(coarse[:max(len(coarse)-1, 0)]) {
		if err := r.delete(ctx, found); err != nil {
			return err
		}
	}
	return nil
}

// deleteFull deletes those of the buckets that hold something.
func (r *reset) deleteFull(ctx context.Context, buckets []Bucket) error {
	full, err := r.nonEmpty(ctx, buckets)
	if err != nil {
		return err
	}
	return r.delete(ctx, full)
}

// nonEmpty returns those of the buckets that hold something.
func (r *reset) nonEmpty(ctx context.Context, buckets []Bucket) ([]Bucket, error) {
	chunks := slices.Collect(slices.Chunk(buckets, tripReads))
	full := make([][]Bucket, len(chunks))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(resetTrips)
	for i, chunk := range chunks {
		group.Go(func() (err error) {
			full[i], err = r.appendNonEmpty(ctx, nil, chunk)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(full...), nil
}

// appendNonEmpty appends those of the buckets that hold something. It halves buckets of
// which one holds no count until they are few enough to delete all of them.
func (r *reset) appendNonEmpty(ctx context.Context, full []Bucket, buckets []Bucket) ([]Bucket, error) {
	var values []int64
	err := tryAgain(ctx, func() (err error) {
		values, err = r.of.read(ctx, r.counter.ID(), buckets)
		return err
	})
	switch {
	case errors.Is(err, engine.ErrBadCounter) && len(buckets) <= tripDeletes:
		return append(full, buckets...), nil
	case errors.Is(err, engine.ErrBadCounter):
		half := len(buckets) / 2
		if full, err = r.appendNonEmpty(ctx, full, buckets[:half]); err != nil {
			return nil, err
		}
		return r.appendNonEmpty(ctx, full, buckets[half:])
	case err != nil:
		return nil, err
	}
	for i, bucket := range buckets {
		if values[i] != 0 {
			full = append(full, bucket)
		}
	}
	return full, nil
}

// delete deletes the buckets, a few of them with each call of the store and
// several calls side by side: each bucket may take it a round trip.
func (r *reset) delete(ctx context.Context, buckets []Bucket) error {
	id := r.counter.ID()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(resetTrips)
	for chunk := range slices.Chunk(buckets, tripDeletes) {
		group.Go(func() error {
			op := store.Op{Counter: id, Writes: make([]store.Write, len(chunk))}
			for i, bucket := range chunk {
				op.Writes[i] = store.Write{Kind: store.Delete, Item: bucket.ID()}
			}
			return tryAgain(ctx, func() error {
				r.of.store.Do(ctx, &op)
				if op.Err != nil {
					return engine.StoreError(op.Err)
				}
				return nil
			})
		})
	}
	return group.Wait()
}

// tryAgain repeats a part of a reset that the store has failed: to do it twice is to do it
// once.
func tryAgain(ctx context.Context, part func() error) error {
	for try := 1; ; try++ {
		err := part()
		if err == nil || errors.Is(err, engine.ErrBadCounter) || try == resetTries {
			return err
		}
		pause := time.NewTimer(resetPause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return err
		case <-pause.C:
		}
	}
}
