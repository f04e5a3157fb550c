package limiter

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/store"
)

// batch is a list of hits that are decided together, with one stamp and one round trip
// for each of their counters.
type batch struct {
	execution
	moment   engine.Moment
	counters counterSet
	hits     arena[hit]
	looked   bool            // it has looked before it adds
	some     []*counterState // of countersOn
	surplus  []*counterState // have more in the store than stays
	resets   resets
	marked   uint64 // with what counters are marked that countersOn has found
}

// path is the way a hit takes.
type path uint8

const (
	faulty  path = iota // it has an error
	listed              // it is on a deny list: nothing is asked, nothing added
	looking             // decided on a look at its counters, nothing added
	adding              // added first, then decided
)

// hit is one hit of a batch.
type hit struct {
	request  *request
	path     path
	cost     int64
	counters []*counterState // its counters
	limits   []limitEval     // its limits, in the order of the rules
	verdict  verdict
	retries  bool
}

// limitEval is one limit as it answers one hit.
type limitEval struct {
	ruling
	counter *counterState
	window  *limitWindow
	cached  *cachedLimit // what a cached denial found, where there is one

	count int64
	exact bool
	ahead int64 // of it, the cost of hits that were admitted before this one in the batch
	reset engine.Wait
	own   engine.Wait // what it would be if the limit were not elastic
}

// sourceNow returns where the count would come from now. A store that failed after the limit
// was weighed, for other hits, has answered before.
func (u *limitEval) sourceNow() source {
	switch {
	case u.cached != nil:
		return ofDenial
	case u.counter.err == nil:
		return ofStore
	case u.counter.local && u.rule.OnError == events.OnErrorLocal:
		return ofLocal
	}
	return ofNone
}

// counterState is one counter with the limits of all rules on it.
type counterState struct {
	id      string
	name    counterKey
	engine  engine.Engine
	moment  *engine.Moment
	session engine.Session // nil: it is not open yet
	windows []*limitWindow
	touched uint32 // the changes of this process before the first round trip

	local         bool      // this process's own store is asked, since the shared one has failed
	err           error     // why the shared one could not be asked
	began         time.Time // when the round trip that decided did
	adding        int64     // cost of the batch's hits that add to it
	looked        int64     // cost of hits that a look or a cached denial has denied
	places        []place   // where that was added
	after         store.Op  // what follows the adds: a rollback, a hint
	taken         int64     // of what the batch added, what stays
	notRolledBack bool      // what should have been rolled back was not
	since         int64     // since when the shared store has lost nothing of it
	sinceKnown    bool      // that is known
	marked        uint64
}

// place is what a store acknowledged of the adds.
type place struct {
	local   bool // it is this process's own store
	receipt store.Receipt
	whole   bool // the round trip was made
}

// limitWindow is one limit of a counter, and what its window holds.
type limitWindow struct {
	rule    *events.Rule
	limit   events.Limit
	ceiling int64
	index   int   // among those of the counter
	final   int64 // what no rollback can take away of its count, where that was asked
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// newBatch returns a batch of the requests, and stamps it.
func (l *Limiter) newBatch(moment engine.Moment, requests ...*request) *batch {
	f := batches.Get().(*batch)
	f.l, f.moment, f.began, f.until, f.caller = l, moment, moment.Now, requests[0].until, requests[0].ctx
	f.moment.Stamp = l.stamps.next(moment.Now)
	for _, r := range requests {
		if r.until.Before(f.until) {
			f.until = r.until
		}
		f.join(r)
	}
	return f
}

// free gives back what the batch holds. Nothing of it may be used any more.
func (f *batch) free() {
	if f.ctx != nil {
		f.ctx.over()
	}
	for _, h := range f.hits.handedOut() {
		clear(h.counters)
		clear(h.limits)
		*h = hit{counters: h.counters[:0], limits: h.limits[:0]}
	}
	f.hits.reset()
	f.counters.free()
	clear(f.some)
	clear(f.surplus)
	f.resets.end()
	clear(f.going[:cap(f.going)])
	f.l, f.ctx, f.caller, f.overloaded, f.looked, f.moment = nil, nil, nil, false, false, engine.Moment{}
	batches.Put(f)
}

// join adds a hit to the batch, and finds its path.
func (f *batch) join(r *request) {
	h := f.hits.next()
	h.request, h.cost = r, r.cost
	if r.err != nil {
		return
	}
	h.path = adding
	for i := range r.applied {
		a := &r.applied[i]
		limits := a.Rule.LimitsOf(a.Counter.Feature)
		by := f.l.engines.of(limits)
		if by < 0 {
			h.path, r.err = faulty, errNoEngine
			return
		}
		c, isNew := f.counters.of(a, by)
		if isNew {
			c.engine, c.moment = f.l.engines[by], &f.moment
		}
		if !slices.Contains(h.counters, c) {
			h.counters = append(h.counters, c)
		}
		if a.Listing == events.Denied && !a.Rule.Shadow {
			h.path = listed
		}
		for _, check := range f.counters.windowsOf(c, a.Rule, limits) {
			h.limits = append(h.limits, limitEval{counter: c, window: check, ruling: ruling{rule: a.Rule, listing: a.Listing}})
		}
	}
}

// errNoEngine is the error of a hit with rules whose algorithm no engine knows.
var errNoEngine = fmt.Errorf("%w: no engine keeps the algorithm of a limit", events.ErrInvalid)

// engines are those of a limiter.
type engines []engine.Engine

// of returns which engine keeps the counter of a rule's limits, which are of one algorithm; -1:
// none does.
func (all engines) of(limits []events.Limit) int {
	for i, e := range all {
		if len(limits) == 0 || e.Keeps(limits[0].Algorithm) {
			return i
		}
	}
	return -1
}

// again reports whether the hits of the batch have been denied before, by a store that answered.
func (f *batch) again() bool { return !f.moment.First.IsZero() }

// recall finds whether the hits may add at once. One that can never fit, or whose
// denial is cached, looks only; so does a check. A hit on a counter that counts
// all hits adds in any case, that it may be counted.
func (f *batch) recall() {
	for _, h := range f.hits.handedOut() {
		switch {
		case h.path != adding:
		case f.moment.Check || f.again():
			h.path = looking
		case !slices.ContainsFunc(h.counters, func(c *counterState) bool { return c.name.countAll }):
			f.l.denials.recallHit(h, f.moment)
		}
	}
}

// needsNoStore reports whether the hit can be decided without a round trip.
func (h *hit) needsNoStore() bool {
	return h.path == faulty || h.path == listed ||
		h.path == looking && !slices.ContainsFunc(h.limits, func(u limitEval) bool { return u.cached == nil })
}

// countersOn returns the counters of the hits on that path, each once, without counters whose
// limits are all decided by a cached denial. The slice is good until the next call.
func (f *batch) countersOn(p path) []*counterState {
	f.marked++
	f.some = f.some[:0]
	for _, h := range f.hits.handedOut() {
		if h.path != p {
			continue
		}
		for i := range h.limits {
			if u := &h.limits[i]; u.cached == nil && u.counter.marked != f.marked {
				u.counter.marked = f.marked
				f.some = append(f.some, u.counter)
			}
		}
	}
	return f.some
}

// look decides the hits that look on exact sums, and lets those add that find room.
func (f *batch) look() {
	claims := f.countersOn(looking)
	var now time.Time
	if len(claims) > 0 {
		now = f.l.now()
	}
	for _, c := range claims {
		f.begin(c, now)
		c.open().Look()
	}
	f.travel(claims, now, true)
	f.looked = len(claims) > 0
	for _, h := range f.hits.handedOut() {
		if h.path != looking {
			continue
		}
		h.weigh(f.again())
		if !f.moment.Check && h.verdict == admitted {
			f.letAdd(h)
		}
	}
}

// letAdd has a hit add that was looking and has found room.
func (f *batch) letAdd(h *hit) {
	h.path = adding
	h.request.overshoot = overshoot{} // it is over
	for i := range h.limits {
		h.limits[i].cached = nil
	}
	for _, c := range h.counters {
		on := limitsOn{h, c}
		if !on.isFull() && !f.overloaded { // overloaded, it has not looked
			f.l.denials.forget(c.id, on.key())
		}
	}
}

// add adds the hits to their counters.
func (f *batch) add() {
	for _, h := range f.hits.handedOut() {
		for _, c := range h.counters {
			switch h.path {
			case adding:
				c.adding += h.cost
			case looking:
				c.looked += h.cost
			}
		}
	}
	// Not counters whose server has just failed to answer a look.
	claims := slices.DeleteFunc(f.countersOn(adding), func(c *counterState) bool { return !c.readable() })
	now := f.began
	if f.looked {
		now = f.l.now()
	}
	for _, c := range claims {
		f.begin(c, now)
		c.open().Add(c.adding, c.most())
	}
	f.travel(claims, now, true)
}

// open returns the session, which a hit that a cached denial decides does not need.
func (c *counterState) open() engine.Session {
	if c.session == nil {
		c.session = c.engine.Begin(c.name.counter, c.id, *c.moment)
		for _, w := range c.windows {
			c.session.Limit(w.limit, w.ceiling)
		}
	}
	return c.session
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

// readable reports whether the counter's sums come from a store.
func (c *counterState) readable() bool { return c.err == nil || c.local }
