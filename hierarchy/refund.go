package hierarchy

import (
	"context"
	"slices"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

// refund takes the latest events of a counter away.
type refund struct {
	of      *Counters
	counter events.Counter
	id      string
	left    int64
}

// Refund takes the latest events away that the counter remembers, at most so many, and returns how many that
// was. It finds them from the coarsest buckets down, and subtracts as a rollback does: from the coarsest level
// down, where Memcached stops at 0. Concurrent refunds may find the same events. The coarsest buckets, whose sums
// decide, are then exact all the same; finer ones hold too much until the events have left their windows. A
// replica that does not answer keeps what is taken away. See [engine.Counting].
func (c *Counters) Refund(ctx context.Context, by int64, counter events.Counter) (refunded int64, err error) {
	now := c.now()
	r := refund{c, counter, counter.ID(), by}
	c.use(r.id, counter, now)
	finest, coarsest := levels(counter)
	remembered := Window{now.Unix() - engine.CeilSeconds(counter.Remembered()) + 1, now.Unix() + engine.CeilSeconds(c.grace)}
	err = r.take(ctx, slices.Collect(CoverOf(remembered, finest, coarsest).Buckets()), finest)
	c.cache.forget(r.id)
	c.base.Changes.Of(r.id).Add(1)
	return by - r.left, err
}

// take takes events from the buckets, the latest first.
func (r *refund) take(ctx context.Context, buckets []Bucket, finest Level) error {
	op := store.Op{Counter: r.id, Reads: make([]store.Read, len(buckets))}
	for i, bucket := range buckets {
		op.Reads[i].Item = bucket.ID()
	}
	r.of.store.Do(ctx, &op)
	if op.Err != nil {
		return engine.StoreError(op.Err)
	}
	for i, bucket := range slices.Backward(buckets) {
		held := op.Reads[i].Value
		if held <= 0 {
			continue
		}
		var err error
		if bucket.Level == finest {
			err = r.subtract(ctx, &op, bucket, min(held, r.left))
		} else {
			err = r.take(ctx, bucketsWithin(bucket.Level-1, Window{bucket.First(), bucket.Last()}), finest)
		}
		if err != nil || r.left == 0 {
			return err
		}
	}
	return nil
}

// subtract subtracts by from the buckets that hold a bucket of the finest level, on the replicas that the op has
// read.
func (r *refund) subtract(ctx context.Context, read *store.Op, bucket Bucket, by int64) error {
	adds := r.of.addsOf(nil, r.counter, bucket.First())
	receipt := read.Receipt
	for i, answered := range receipt.Acknowledged {
		if answered > 0 || !r.of.replicated {
			receipt.Acknowledged[i] = uint32(len(adds))
		}
	}
	var op store.Op
	op.RollBack(r.id, adds, receipt, by)
	r.of.store.Do(ctx, &op)
	if op.Err != nil {
		return engine.StoreError(op.Err)
	}
	r.left -= by
	return nil
}
