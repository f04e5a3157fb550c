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
	ops        []*store.Op // of the round trips under way
	sent       []*claim    // of each of them
}

// travel makes the trips of the claims that add or want something, side by side. It
// ends when all have. Those that fail do without the store from then on.
func (x *execution) travel(claims []*claim, now time.Time) {
	x.ops, x.sent = x.ops[:0], x.sent[:0]
	for _, c := range claims {
		switch {
		case x.overloaded:
			x.doWithout(c, now)
		case c.local:
			x.send(c, now)
		case c.travels():
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

// doWithout has the claim do without the shared store, which too much waits for.
func (x *execution) doWithout(c *claim, now time.Time) {
	if c.local {
		x.send(c, now)
	} else if c.travels() {
		c.unwant()
		x.fail(c, ErrOverload)
	}
}

// travels reports whether the claim's next trip has anything to do.
func (c *claim) travels() bool { return c.due() > 0 || len(c.op.Reads) > 0 }

// due returns what the claim's next trip adds.
func (c *claim) due() int64 {
	if c.added {
		return 0
	}
	return c.adding
}

// send makes the claim's next trip, if it has anything to do.
func (x *execution) send(c *claim, now time.Time) { x.sendOn(x.ctx, c, now) }

func (x *execution) sendOn(ctx context.Context, c *claim, now time.Time) {
	if c.travels() {
		x.arrived(c, c.trip(ctx, c.store, c.due(), now))
	}
}

// arrived notes what the trip has added.
func (x *execution) arrived(c *claim, err error) {
	if c.due() > 0 {
		c.places = append(c.places, place{c.store, c.local, c.op.Receipt, err == nil})
		c.added = true
	}
	if err != nil {
		x.fail(c, err)
	}
}

// fail has the claim do without the shared store. Where a rule says so, this
// process's own counters are asked instead, from the beginning.
func (x *execution) fail(c *claim, err error) {
	x.l.report(err)
	c.err = errors.Join(c.err, err)
	wanted := slices.ContainsFunc(c.checks, func(check *check) bool { return check.rule.OnError == events.OnErrorLocal })
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
func (x *execution) rollBack(surplus []*claim) {
	if len(surplus) == 0 {
		return
	}
	// In its own time, whatever became of the caller's.
	ctx := &tripContext{caller: x.ctx.caller, deadline: time.Now().Add(x.l.timeout)}
	defer ctx.over()
	x.ops, x.sent = x.ops[:0], x.sent[:0]
	for _, c := range surplus {
		for _, place := range c.places {
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

func (x *execution) rolledBack(c *claim) {
	if c.after.Err != nil {
		x.l.report(c.after.Err)
		c.stuck = true
	}
}

// hint has the replicas that have missed the adds get what stays of them.
func (x *execution) hint(claims []*claim) {
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
func (x *execution) readOn(claims []*claim) (failed []*claim) {
	x.ops, x.sent = x.ops[:0], x.sent[:0]
	now := x.l.now()
	for _, c := range claims {
		if !c.local {
			x.ops, x.sent = append(x.ops, c.pack(0)), append(x.sent, c)
		} else if err := c.trip(x.ctx, c.store, 0, now); err != nil {
			x.l.report(err)
			failed = append(failed, c)
		}
	}
	if len(x.ops) > 0 {
		x.l.store.Do(x.ctx, x.ops...)
	}
	for _, c := range x.sent {
		if err := c.unpack(0, now); err != nil {
			x.l.report(err)
			failed = append(failed, c)
		}
	}
	return failed
}

// readClosed finds what closed buckets hold of the limits that deny hits by a look. Where the store
// fails that is unknown, and 0.
func (x *execution) readClosed(hits []*hit, before int64) {
	var claims []*claim
	for _, h := range hits {
		for i := range h.uses {
			if u := &h.uses[i]; h.path == looking && u.denies() {
				u.claim.wantAll(u.closedTiles(before))
				if len(u.claim.op.Reads) > 0 && !slices.Contains(claims, u.claim) {
					claims = append(claims, u.claim)
				}
			}
		}
	}
	x.readOn(claims)
	for _, h := range hits {
		for i := range h.uses {
			if u := &h.uses[i]; h.path == looking && u.denies() {
				u.check.closed, _ = u.claim.exact(u.closedTiles(before))
			}
		}
	}
}
