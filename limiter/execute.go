package limiter

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/store"
)

// execution makes the round trips of a batch: the sessions say what they add and read, and the
// verdicts say what is rolled back. Those of several counters go side by side.
type execution struct {
	l      *Limiter
	began  time.Time
	until  time.Time       // when the wait for the store is over
	ctx    *tripContext    // nil until the first round trip
	caller context.Context // of the first hit
	// Too much waits for the shared store: it is not asked.
	overloaded bool
	ops        []*store.Op     // of the round trips under way
	going      []*counterState // of each of them
}

// travel makes the round trips of the counters' steps, those of several counters side by side,
// until all steps have ended. Where a step decides, counters whose round trip fails do without
// the store from then on; else they know no more than before.
func (x *execution) travel(counters []*counterState, now time.Time, decides bool) {
	if len(counters) == 0 {
		return
	}
	if x.ctx == nil {
		x.ctx = &tripContext{caller: x.caller, deadline: x.until}
	}
	x.going = append(x.going[:0], counters...)
	for {
		x.ops = x.ops[:0]
		going := x.going[:0]
		for _, c := range x.going {
			if c.local {
				x.travelAlone(x.ctx, c, now, decides)
			} else if op := c.open().Next(now); op == nil {
				continue
			} else if x.overloaded {
				op.Err = engine.ErrOverload // and has done nothing
				_ = c.open().Absorb()
				x.failed(c, op.Err, decides)
			} else {
				x.ops, going = append(x.ops, op), append(going, c)
			}
		}
		if x.going = going; len(going) == 0 {
			return
		}
		x.l.store.Do(x.ctx, x.ops...)
		going = x.going[:0]
		for i, c := range x.going {
			if x.arrived(c, x.ops[i], decides) {
				going = append(going, c)
			}
		}
		x.going = going
	}
}

// travelAlone makes the round trips of the counter's step to this process's own store.
func (x *execution) travelAlone(ctx context.Context, c *counterState, now time.Time, decides bool) {
	for op := c.open().Next(now); op != nil; op = c.open().Next(now) {
		x.l.local.Do(ctx, op)
		if !x.arrived(c, op, decides) {
			return
		}
	}
}

// arrived takes in what came of a round trip, and notes what it has added. It reports whether
// the step goes on.
func (x *execution) arrived(c *counterState, op *store.Op, decides bool) bool {
	if len(op.Writes) > 0 {
		c.places = append(c.places, place{c.local, op.Receipt, op.Err == nil})
	}
	err := c.open().Absorb()
	if err != nil {
		x.failed(c, err, decides)
	}
	return err == nil
}

// failed ends a step of the counter whose round trip has failed.
func (x *execution) failed(c *counterState, err error, decides bool) {
	if decides {
		x.fail(c, err)
	} else {
		x.l.onStoreError(err)
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
	c.local = true
	c.open().Restart()
	// The time for the shared one may be over.
	ctx := &tripContext{caller: x.caller, deadline: time.Now().Add(x.l.timeout)}
	defer ctx.over()
	if c.adding > 0 {
		c.open().Add(c.adding, c.most())
		x.travelAlone(ctx, c, x.began, true)
	}
	if c.local {
		c.open().Look()
		x.travelAlone(ctx, c, x.began, true)
	}
}

// rollBack subtracts what the counters have more than stays.
func (x *execution) rollBack(surplus []*counterState) {
	if len(surplus) == 0 {
		return
	}
	// In its own time, whatever became of the caller's.
	ctx := &tripContext{caller: x.caller, deadline: time.Now().Add(x.l.timeout)}
	defer ctx.over()
	x.ops, x.going = x.ops[:0], x.going[:0]
	for _, c := range surplus {
		// The counter has one op for what follows its adds. The local store, which comes last in
		// the places, is done with it before the shared one gets it.
		for _, place := range slices.Backward(c.places) {
			if place.receipt.None() {
				continue
			}
			c.open().Follow(&c.after, store.Subtract, place.receipt)
			if !place.local {
				x.ops, x.going = append(x.ops, &c.after), append(x.going, c)
				continue
			}
			x.l.local.Do(ctx, &c.after)
			x.rolledBack(c)
		}
	}
	if len(x.ops) == 0 {
		return
	}
	x.l.store.Do(ctx, x.ops...)
	for _, c := range x.going {
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
func (x *execution) hint(counters []*counterState) {
	if !x.l.replicated {
		return
	}
	x.ops = x.ops[:0]
	for _, c := range counters {
		for _, place := range c.places {
			if c.taken > 0 && place.whole && !place.local {
				c.open().Follow(&c.after, store.Hint, place.receipt)
				x.ops = append(x.ops, &c.after)
			}
		}
	}
	if len(x.ops) > 0 {
		x.l.store.Do(x.ctx, x.ops...)
	}
}

// readFinal finds what no rollback can take away from the limits that deny hits by a look. Where
// the store fails that is unknown, and 0.
func (x *execution) readFinal(hits []*hit) {
	var counters []*counterState
	var denying []*limitEval
	for _, h := range hits {
		for i := range h.limits {
			if u := &h.limits[i]; h.path == looking && u.denies() {
				u.counter.open().WantFinal(u.window.index)
				denying = append(denying, u)
				if !slices.Contains(counters, u.counter) {
					counters = append(counters, u.counter)
				}
			}
		}
	}
	x.travel(counters, x.l.now(), false)
	for _, u := range denying {
		u.window.final = u.counter.open().Final(u.window.index)
	}
}

// tripContext is the context of a decision's trips. It has the values of the
// caller's, and a deadline. That the caller leaves does not end it: what has been
// added has to be known, to be rolled back.
//
// Its timer is set only for a store that waits for Done. Most have their own way
// to keep to the deadline, and a timer for each hit costs more than the hit.
type tripContext struct {
	caller   context.Context
	deadline time.Time

	mu    sync.Mutex
	armed context.Context // nil until Done is called
	end   context.CancelFunc
}

func (c *tripContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *tripContext) Value(key any) any { return c.caller.Value(key) }

func (c *tripContext) Done() <-chan struct{} { return c.arm().Done() }

func (c *tripContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.armed != nil:
		return c.armed.Err()
	case !time.Now().Before(c.deadline):
		return context.DeadlineExceeded
	}
	return nil
}

func (c *tripContext) arm() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.armed == nil {
		c.armed, c.end = context.WithDeadline(context.Background(), c.deadline)
	}
	return c.armed
}

// over frees what the context holds.
func (c *tripContext) over() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.end != nil {
		c.end()
	}
}
