package hierarchy

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/store"
)

// execution makes the round trips of a batch: the plan says what they add and read, and the
// verdicts say what is rolled back. Those of several counters go side by side.
type execution struct {
	l     *Limiter
	began time.Time
	until time.Time // when the wait for the store is over
	ctx   *tripContext
	// Too much waits for the shared store: it is not asked.
	overloaded bool
	ops        []*store.Op     // of the round trips under way
	sent       []*counterState // of each of them
}

// travel makes the round trips of the counters that add or want something, side by side. It
// ends when all have. Counters whose round trip fails do without the store from then on.
func (x *execution) travel(claims []*counterState, now time.Time) {
	x.ops, x.sent = x.ops[:0], x.sent[:0]
	for _, c := range claims {
		switch {
		case c.local:
			x.send(c, now)
		case !c.travels():
		case x.overloaded:
			c.unwant()
			x.fail(c, ErrOverload)
		default:
			x.ops, x.sent = append(x.ops, c.pack(c.due())), append(x.sent, c)
		}
	}
	if len(x.ops) == 0 {
		return
	}
	x.l.store.Do(x.ctx, x.ops...)
	for _, c := range x.sent {
		x.arrived(c, c.unpack(c.due(), now))
	}
}

// travels reports whether the counter's next round trip has anything to do.
func (c *counterState) travels() bool { return c.due() > 0 || len(c.op.Reads) > 0 }

// due returns what the counter's next round trip adds.
func (c *counterState) due() int64 {
	if c.added {
		return 0
	}
	return c.adding
}

// send makes the counter's next round trip, if it has anything to do.
func (x *execution) send(c *counterState, now time.Time) { x.sendOn(x.ctx, c, now) }

func (x *execution) sendOn(ctx context.Context, c *counterState, now time.Time) {
	if c.travels() {
		x.arrived(c, c.trip(ctx, c.store, c.due(), now))
	}
}

// arrived notes what the round trip has added.
func (x *execution) arrived(c *counterState, err error) {
	if c.due() > 0 {
		c.places = append(c.places, place{c.store, c.local, c.op.Receipt, err == nil})
		c.added = true
	}
	if err != nil {
		x.fail(c, err)
	}
}

// fail has the counter do without the shared store. Where a rule says so, this
// process's own counters are asked instead, from the beginning.
func (x *execution) fail(c *counterState, err error) {
	x.l.onStoreError(err)
	c.err = errors.Join(c.err, err)
	wanted := slices.ContainsFunc(c.windows, func(check *limitWindow) bool { return check.rule.OnError == events.OnErrorLocal })
	if c.local || x.l.local == nil || !wanted {
		c.local = false
		return
	}
	c.local, c.store, c.added = true, x.l.local, false
	c.leaveCache()
	c.forgetOpen(x.began)
	// The time for the shared one may be over.
	ctx := &tripContext{caller: x.ctx.caller, deadline: time.Now().Add(x.l.timeout)}
	defer ctx.over()
	if c.adding > 0 {
		c.wantOthers()
		x.sendOn(ctx, c, x.began)
	}
	if c.local {
		c.wantExactly()
		x.sendOn(ctx, c, x.began)
	}
	c.sum()
}

// rollBack subtracts what the counters have more than stays.
func (x *execution) rollBack(surplus []*counterState) {
	if len(surplus) == 0 {
		return
	}
	// In its own time, whatever became of the caller's.
	ctx := &tripContext{caller: x.ctx.caller, deadline: time.Now().Add(x.l.timeout)}
	defer ctx.over()
	x.ops, x.sent = x.ops[:0], x.sent[:0]
	for _, c := range surplus {
		// The counter has one op for what follows its adds. The local store, which comes last in
		// the places, is done with it before the shared one gets it.
		for _, place := range slices.Backward(c.places) {
			if place.receipt.None() {
				continue
			}
			c.after.RollBack(c.id, c.adds, place.receipt, c.adding-c.taken)
			if !place.local {
				x.ops, x.sent = append(x.ops, &c.after), append(x.sent, c)
				continue
			}
			place.store.Do(ctx, &c.after)
			x.rolledBack(c)
		}
	}
	if len(x.ops) == 0 {
		return
	}
	x.l.store.Do(ctx, x.ops...)
	for _, c := range x.sent {
		x.rolledBack(c)
	}
}

func (x *execution) rolledBack(c *counterState) {
	if c.after.Err != nil {
		x.l.onStoreError(c.after.Err)
		c.notRolledBack = true
	}
}

// hint has the replicas that have missed the adds get what stays of them.
func (x *execution) hint(claims []*counterState) {
	if !x.l.replicated {
		return
	}
	x.ops = x.ops[:0]
	for _, c := range claims {
		for _, place := range c.places {
			if c.taken > 0 && place.whole && !place.local {
				c.after.Hint(c.id, c.adds, place.receipt, c.taken)
				x.ops = append(x.ops, &c.after)
			}
		}
	}
	if len(x.ops) > 0 {
		x.l.store.Do(x.ctx, x.ops...)
	}
}

// readOn reads what the counters want, and returns those whose read failed.
func (x *execution) readOn(claims []*counterState) (failed []*counterState) {
	x.ops, x.sent = x.ops[:0], x.sent[:0]
	now := x.l.now()
	for _, c := range claims {
		if !c.local {
			x.ops, x.sent = append(x.ops, c.pack(0)), append(x.sent, c)
		} else if err := c.trip(x.ctx, c.store, 0, now); err != nil {
			x.l.onStoreError(err)
			failed = append(failed, c)
		}
	}
	if len(x.ops) > 0 {
		x.l.store.Do(x.ctx, x.ops...)
	}
	for _, c := range x.sent {
		if err := c.unpack(0, now); err != nil {
			x.l.onStoreError(err)
			failed = append(failed, c)
		}
	}
	return failed
}

// readClosed finds what closed buckets hold of the limits that deny hits by a look. Where the store
// fails that is unknown, and 0.
func (x *execution) readClosed(hits []*hit, before int64) {
	var claims []*counterState
	for _, h := range hits {
		for i := range h.limits {
			if u := &h.limits[i]; h.path == looking && u.denies() {
				u.counter.wantAll(u.closedTiles(before))
				if len(u.counter.op.Reads) > 0 && !slices.Contains(claims, u.counter) {
					claims = append(claims, u.counter)
				}
			}
		}
	}
	x.readOn(claims)
	for _, h := range hits {
		for i := range h.limits {
			if u := &h.limits[i]; h.path == looking && u.denies() {
				u.window.closed, _ = u.counter.exact(u.closedTiles(before))
			}
		}
	}
}
