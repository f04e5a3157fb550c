package limiter

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
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

// counterState is one counter with the limits of all rules on it.
type counterState struct {
	id      string
	name    counterKey
	engine  engine.Engine
	moment  *engine.Moment
	shared  engine.Session // on the shared store; nil: it is not open yet
	alone   engine.Session // on this process's own store, since the shared one has failed
	windows []*limitWindow
	// deniesAll: one of the limits is 0.
	deniesAll bool
	touched   uint32 // the changes of this process before the first round trip

	local         bool         // this process's own store is asked, since the shared one has failed
	err           error        // why the shared one could not be asked
	began         time.Time    // when the round trip that decided did
	hits          []engine.Hit // of the batch, that add to it
	adding        int64        // their cost
	looked        int64        // cost of hits that a look or a cached denial has denied
	added         bool         // a store was asked to add that
	decided       int          // how many of the hits are decided
	taken         int64        // of what the batch added, what stays
	notRolledBack bool         // what should have been rolled back was not
	since         int64        // since when the shared store has lost nothing of it
	sinceKnown    bool         // that is known
	marked        uint64
}

// open returns the session on the store that decides. A hit that a cached denial decides needs
// none.
func (c *counterState) open() engine.Session {
	switch {
	case c.alone != nil:
		return c.alone
	case c.shared == nil:
		c.shared = c.session(*c.moment)
	}
	return c.shared
}

// session returns a session with the counter's limits.
func (c *counterState) session(moment engine.Moment) engine.Session {
	session := c.engine.Begin(c.name.counter, c.id, moment)
	for _, w := range c.windows {
		session.Limit(engine.Limit{Limit: w.limit, Ceiling: w.ceiling, Enforced: w.enforced, Revision: w.rule.Revision})
	}
	return session
}

// begin notes when the round trip began that decides, and what this process had changed before.
func (f *batch) begin(c *counterState, now time.Time) {
	if c.began.IsZero() {
		c.touched = f.l.changes.Of(c.id).Load()
	}
	c.began = now
}

// most returns the cost of all hits that may be weighed on the counter.
func (c *counterState) most() int64 {
	most := c.adding + c.looked
	if c.name.countAll {
		most += c.adding // what other limits deny comes again
	}
	return most
}

// note notes whether the round trips add.
func (c *counterState) note(ops []*store.Op) {
	for _, op := range ops {
		c.added = c.added || op.Kind() != 0
	}
}

// readable reports whether the counter's sums come from a store.
func (c *counterState) readable() bool { return c.err == nil || c.local }

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
				x.travelAlone(c, now, decides)
			} else if ops := c.open().Next(now); len(ops) == 0 {
				continue
			} else if x.overloaded {
				for _, op := range ops {
					op.Err = engine.ErrOverload // and has done nothing
				}
				x.absorb(c, decides)
			} else {
				c.note(ops)
				x.ops, going = append(x.ops, ops...), append(going, c)
			}
		}
		if x.going = going; len(going) == 0 {
			return
		}
		x.l.store.Do(x.ctx, x.ops...)
		going = x.going[:0]
		for _, c := range x.going {
			if x.absorb(c, decides) {
				going = append(going, c)
			}
		}
		x.going = going
	}
}

// travelAlone makes the round trips of the counter's step to this process's own store. The time for
// the shared one may be over.
func (x *execution) travelAlone(c *counterState, now time.Time, decides bool) {
	ctx := &tripContext{caller: x.caller, deadline: time.Now().Add(x.l.timeout)}
	defer ctx.over()
	for ops := c.open().Next(now); len(ops) > 0; ops = c.open().Next(now) {
		c.note(ops)
		x.l.local.Do(ctx, ops...)
		if !x.absorb(c, decides) {
			return
		}
	}
}

// absorb has the counter's session take in what came of its round trips. It reports whether the
// step goes on.
func (x *execution) absorb(c *counterState, decides bool) bool {
	err := c.open().Absorb()
	switch {
	case err == nil:
	case decides:
		x.fail(c, err)
	default:
		x.l.onStoreError(err)
	}
	return err == nil
}

// fail has the counter do without the shared store. Where a rule says so, this process's own
// counters are asked instead, from the beginning.
func (x *execution) fail(c *counterState, err error) {
	x.l.onStoreError(err)
	c.err = errors.Join(c.err, err)
	wanted := slices.ContainsFunc(c.windows, func(check *limitWindow) bool { return check.rule.OnError == events.OnErrorLocal })
	if c.local || x.l.local == nil || !wanted {
		c.local = false
		return
	}
	moment := *c.moment
	moment.Alone = true
	c.local, c.alone = true, c.session(moment)
	if c.adding > 0 {
		c.alone.Add(c.hits, c.most())
		x.travelAlone(c, x.began, true)
	}
	if c.local {
		c.alone.Look()
		x.travelAlone(c, x.began, true)
	}
}

// follow has the replicas that have missed the adds get what stays of them, and rolls back what
// does not stay.
func (x *execution) follow(counters []*counterState) {
	x.plan(counters, engine.Session.Hint)
	if len(x.ops) > 0 {
		x.l.store.Do(x.ctx, x.ops...)
	}
	x.plan(counters, engine.Session.RollBack)
	local := slices.ContainsFunc(counters, func(c *counterState) bool { return c.alone != nil })
	if len(x.ops) == 0 && !local {
		return
	}
	// In its own time, whatever became of the caller's.
	ctx := &tripContext{caller: x.caller, deadline: time.Now().Add(x.l.timeout)}
	defer ctx.over()
	for _, c := range counters {
		if c.alone == nil {
			continue
		}
		if ops := c.alone.RollBack(); len(ops) > 0 {
			x.l.local.Do(ctx, ops...)
			for _, op := range ops {
				x.followed(c, op)
			}
		}
	}
	if len(x.ops) > 0 {
		x.l.store.Do(ctx, x.ops...)
	}
	for i, c := range x.going {
		x.followed(c, x.ops[i])
	}
}

// begin begins what no hit waits for of the session, if there is one.
func begin(session engine.Session, on store.Store) {
	if session == nil {
		return
	}
	if later := session.Later(); later != nil {
		store.Later(on, later)
	}
}

// plan notes which round trips to the shared store the sessions want, and for which counters.
func (x *execution) plan(counters []*counterState, of func(engine.Session) []*store.Op) {
	x.ops, x.going = x.ops[:0], x.going[:0]
	for _, c := range counters {
		if c.shared == nil {
			continue
		}
		for _, op := range of(c.shared) {
			x.ops, x.going = append(x.ops, op), append(x.going, c)
		}
	}
}

// followed notes a rollback that has failed.
func (x *execution) followed(c *counterState, op *store.Op) {
	if op.Err != nil {
		x.l.onStoreError(op.Err)
		c.notRolledBack = true
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
