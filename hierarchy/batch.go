package hierarchy

import (
	"slices"
	"sync"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/store"
)

// batch is a list of hits that are decided together, with one stamp and one round trip
// for each of their counters.
type batch struct {
	plan
	execution
	counters  counterSet
	hits      arena[hit]
	checkOnly bool
	asked     bool            // it has looked before it adds
	again     bool            // its hits have been denied before, by a store that answered
	first     time.Time       // when they were tried first, if again
	some      []*counterState // of countersOn
	surplus   []*counterState // have more in the store than stays
	marked    uint64          // with what counters are marked that countersOn has found
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
	reset Wait
	own   Wait // what it would be if the limit were not elastic
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

// counterState is one counter with the limits of all rules on it. Its reader knows the
// values of buckets without what the batch added.
type counterState struct {
	reader
	name    counterKey
	finest  Level
	windows []*limitWindow
	tiles   Cover // memory for a cover

	store         Store     // that is asked: the shared one, or after its failure the local one
	local         bool      // it is the local one
	err           error     // why the shared one could not be asked
	began         time.Time // when the round trip that decided did
	adding        int64     // cost of the batch's hits that add to it
	looked        int64     // cost of hits that a look or a cached denial has denied
	added         bool      // a round trip was made for that
	places        []place   // where that was added
	after         store.Op  // what follows the adds: a rollback, a hint
	taken         int64     // of what the batch added, what stays
	notRolledBack bool      // what should have been rolled back was not
	since         int64     // since when the shared store has lost nothing of it
	sinceKnown    bool      // that is known
	marked        uint64
}

// place is a store, and what it acknowledged of the adds.
type place struct {
	store   Store
	local   bool // it is this process's own
	receipt store.Receipt
	whole   bool // the round trip was made
}

// limitWindow is one limit of a counter, and what its window holds.
type limitWindow struct {
	rule    *events.Rule
	limit   events.Limit
	ceiling int64
	span    span
	lo, hi  int64 // what others hold of the window: at least, and at most
	closed  int64 // what closed buckets hold of it, where that was asked
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// newBatch returns a batch of the requests, stamped now.
func (l *Limiter) newBatch(now time.Time, requests ...*request) *batch {
	f := batches.Get().(*batch)
	f.l, f.began, f.until = l, now, requests[0].until
	f.plan = plan{stamp: l.stamps.next(f.began), grace: l.grace, ahead: l.ahead, open: l.open, spanOf: l.spanOf}
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
	clear(f.sent)
	f.l, f.ctx, f.overloaded = nil, nil, false
	f.checkOnly, f.asked, f.again, f.first = false, false, false, time.Time{}
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
		c, isNew := f.counters.of(a)
		if isNew {
			if f.l.onUse != nil {
				f.l.onUse(a.ID, a.Counter, f.began)
			}
			c.store = f.l.store
		}
		if !slices.Contains(h.counters, c) {
			h.counters = append(h.counters, c)
		}
		if a.Listing == events.Denied && !a.Rule.Shadow {
			h.path = listed
		}
		for _, check := range f.counters.limitsOf(&f.plan, c, a) {
			h.limits = append(h.limits, limitEval{counter: c, window: check, ruling: ruling{rule: a.Rule, listing: a.Listing}})
		}
	}
}

// recall finds whether the hits may add at once. One that can never fit, or whose
// denial is cached, looks only; so does a check. A hit on a counter that counts
// all hits adds in any case, that it may be counted.
func (f *batch) recall() {
	for _, h := range f.hits.handedOut() {
		switch {
		case h.path != adding:
		case f.checkOnly || f.again:
			h.path = looking
		case !slices.ContainsFunc(h.counters, func(c *counterState) bool { return c.name.countAll }):
			f.l.denials.recallHit(h, f.stamp, f.began, f.l.cache)
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
	if len(f.some) > 0 && f.ctx == nil {
		f.ctx = &tripContext{caller: f.hits.all[0].request.ctx, deadline: f.until}
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
		c.began = now
		c.remember(f.l.cache, now, f.closed(), f.first)
		c.asks = f.checkOnly && f.l.replicated // as a count does
		c.wantExactly()
	}
	f.travel(claims, now)
	f.asked = len(claims) > 0
	for _, c := range claims {
		c.sum()
	}
	for _, h := range f.hits.handedOut() {
		if h.path != looking {
			continue
		}
		h.evaluate(f.again)
		if !f.checkOnly && h.verdict == admitted {
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

// add adds the hits to their counters, the finest level first, and reads after
// the adds what bounds their limits; where the bounds leave a limit open, also
// the finer buckets at the window's edge.
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
	claims := f.countersOn(adding)
	now := f.began
	if f.asked {
		now = f.l.now()
	}
	for _, c := range claims {
		if !c.readable() {
			c.added = true // no: its server has just failed to answer a look
			continue
		}
		c.began = now
		if c.cache == nil && !c.local {
			c.remember(f.l.cache, now, f.closed(), f.first)
		} else {
			c.forgetOpen(now)
		}
		c.nameAdds(&f.plan)
		c.wantOthers()
	}
	f.travel(claims, now)
	open := claims[:0]
	for _, c := range claims {
		c.bound()
		if c.readable() && c.wantOpenEdges() {
			open = append(open, c)
		}
	}
	f.travel(open, now)
	for _, c := range open {
		c.sum()
	}
}

// readable reports whether the counter's sums come from a store.
func (c *counterState) readable() bool { return c.err == nil || c.local }
