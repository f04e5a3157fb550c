package hierarchy

import (
	"context"
	"slices"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

// Refund takes away the latest events of the counter, as an undo does: from the coarsest level down, where Memcached
// stops at 0. Concurrent refunds may find the same events. Then the coarsest buckets, whose sums decide, are exact, and
// finer ones hold too much until the events have left their windows. A replica that does not answer keeps what is taken
// away. See [engine.Counting].
func (c *Counters) Refund(ctx context.Context, by int64, counter events.Counter) (refunded int64, err error) {
	id, now := counter.ID(), c.base.Clock()
	c.base.OnUse(id, counter, now)
	finest, coarsest := levels(counter)
	remembered := Window{now.Unix() - engine.CeilSeconds(counter.Remembered()) + 1, now.Unix() + engine.CeilSeconds(c.base.Grace)}
	left, err := c.refund(ctx, by, counter, id, CoverOf(remembered, finest, coarsest))
	c.changed(id)
	return by - left, err
}

// refund takes events from the buckets, the latest first, and returns how many are left to take.
func (c *Counters) refund(ctx context.Context, by int64, counter events.Counter, id string, cover Cover) (left int64, err error) {
	buckets := slices.Collect(cover.Buckets())
	read := readOf(id, buckets)
	if err := c.do(ctx, read); err != nil {
		return by, err
	}
	finest, _ := levels(counter)
	for i, b := range slices.Backward(buckets) {
		taken := min(read.Reads[i].Value, by)
		if taken <= 0 {
			continue
		}
		if b.Level > finest {
			by, err = c.refund(ctx, by, counter, id, b.children())
		} else if err = c.take(ctx, taken, read, c.appendAdds(nil, counter, b.First(), 0)); err == nil {
			by -= taken
		}
		if err != nil || by == 0 {
			return by, err
		}
	}
	return by, nil
}

// take subtracts from the buckets of the adds, on the replicas that have answered the read.
func (c *Counters) take(ctx context.Context, by int64, read *store.Op, adds []store.Write) error {
	receipt := read.Receipt
	for i, answered := range receipt.Acknowledged {
		if answered > 0 || !c.replicated {
			receipt.Acknowledged[i] = uint32(len(adds))
		}
	}
	return c.subtract(ctx, read.Counter, adds, receipt, by)
}
