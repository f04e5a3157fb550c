package hierarchy

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/store"
)

// flush is a list of hits that are decided together, with one stamp and one trip
// for each of their counters.
type flush struct {
	plan
	l         *Limiter
	began     time.Time
	until     time.Time // when the wait for the store is over
	ctx       *tripContext
	checkOnly bool
	asked     bool      // it has looked before it adds
	again     bool      // its hits have been denied before, by a store that answered
	first     time.Time // when they were tried first
	// Too much waits for the shared store: it is not asked.
	overloaded bool
	hits       arena[hit]
	claims     arena[claim] // each counter once
	byName     map[claimName]*claim
	checks     arena[check]
	some       []*claim    // of claimsOf
	surplus    []*claim    // have more in the store than stays
	ops        []*store.Op // of the round trips under way
	sent       []*claim    // of each of them
	marked     uint64      // with what claims are marked that claimsOf has found
}

// path is the way a hit takes.
type path uint8

const (
	faulty  path = iota // it has an error
	listed              // it is on a deny list: nothing is asked, nothing added
	looking             // decided on a look at its counters, nothing added
	adding              // added first, then decided
)

// hit is one hit of a flush.
type hit struct {
	request *request
	path    path
	cost    int64
	claims  []*claim // its counters
	uses    []use    // its limits, in the order of the rules
	verdict verdict
	retries bool
}

// use is one limit as a hit uses it.
type use struct {
	ruling
	claim    *claim
	check    *check
	recalled *cachedLimit // what a cached denial found, where there is one

	count int64
	exact bool
	reset Wait
	own   Wait // what it would be if the limit were not elastic
}

// sourceNow returns where the count would come from now. A store that failed after the limit
// was weighed, for other hits, has answered before.
func (u *use) sourceNow() source {
	switch {
	case u.recalled != nil:
		return ofDenial
	case u.claim.err == nil:
		return ofStore
	case u.claim.local && u.rule.OnError == events.OnErrorLocal:
		return ofLocal
	}
	return ofNone
}

// claim is one counter with the limits of all rules on it. Its reader knows the
// values of buckets without what the flush added.
type claim struct {
	reader
	name   claimName
	finest Level
	checks []*check
	tiles  Cover // memory for a cover

	store  Store     // that is asked: the shared one, or after its failure the local one
	local  bool      // it is the local one
	err    error     // why the shared one could not be asked
	began  time.Time // when the trip that decided did
	adding int64     // cost of the flush's hits that add to it
	looked int64     // cost of those that a look or a memory has denied
	added  bool      // a trip was made for that
	places []place   // where that was added
	after  store.Op  // what follows the adds: a rollback, a hint
	taken  int64     // of what the flush added, what stays
	stuck  bool      // what should have been taken back was not
	since  int64     // since when the shared store has lost nothing of it
	heard  bool      // that is known
	marked uint64
}

// place is a store, and what it acknowledged of the adds.
type place struct {
	store   Store
	local   bool // it is this process's own
	receipt store.Receipt
	whole   bool // the round trip was made
}

// check is one limit of a claim.
type check struct {
	rule    *events.Rule
	limit   events.Limit
	ceiling int64
	span    span
	lo, hi  int64 // what others hold of the window: at least, and at most
	closed  int64 // what closed buckets hold of it, where that was asked
}

var flushes = sync.Pool{New: func() any { return new(flush) }}

// newFlush returns a flush of the requests, stamped now.
func (l *Limiter) newFlush(now time.Time, requests ...*request) *flush {
	f := flushes.Get().(*flush)
	f.l, f.began, f.until = l, now, requests[0].until
	f.plan = plan{stamp: l.nextStamp(f.began), grace: l.grace, ahead: l.ahead, open: l.open, spanOf: l.spanOf}
	for _, r := range requests {
		if r.until.Before(f.until) {
			f.until = r.until
		}
		f.join(r)
	}
	return f
}

// free gives back what the flush holds. Nothing of it may be used any more.
func (f *flush) free() {
	if f.ctx != nil {
		f.ctx.over()
	}
	for _, h := range f.hits.handedOut() {
		clear(h.claims)
		clear(h.uses)
		*h = hit{claims: h.claims[:0], uses: h.uses[:0]}
	}
	for _, c := range f.claims.handedOut() {
		clear(c.checks)
		clear(c.places)
		c.leave()
		*c = claim{reader: c.reader, checks: c.checks[:0], tiles: c.tiles, places: c.places[:0], after: store.Op{Writes: c.after.Writes[:0]}}
	}
	for _, check := range f.checks.handedOut() {
		check.rule, check.limit = nil, events.Limit{}
	}
	f.hits.takeBack()
	f.claims.takeBack()
	f.checks.takeBack()
	clear(f.byName)
	clear(f.some)
	clear(f.surplus)
	clear(f.sent)
	f.l, f.ctx, f.checkOnly, f.asked, f.again, f.overloaded = nil, nil, false, false, false, false
	flushes.Put(f)
}

// join adds a hit to the flush, and finds its path.
func (f *flush) join(r *request) {
	h := f.hits.next()
	h.request, h.cost = r, r.cost
	if r.err != nil {
		return
	}
	h.path = adding
	for i := range r.applied {
		a := &r.applied[i]
		c := f.claim(a)
		if !slices.Contains(h.claims, c) {
			h.claims = append(h.claims, c)
		}
		if a.Listing == events.Denied && !a.Rule.Shadow {
			h.path = listed
		}
		for _, check := range f.checksOf(c, a) {
			h.uses = append(h.uses, use{claim: c, check: check, ruling: ruling{rule: a.Rule, listing: a.Listing}})
		}
	}
}

// claimName tells the claims of a flush apart: by the counter, and how it is counted. Hits
// of two generations of rules may differ in that. Then each has a claim of its own, which
// counts the other in full.
type claimName struct {
	counter  events.Counter
	countAll bool
}

func nameOf(a *events.Applied) claimName {
	return claimName{a.Counter, a.Rule.Count == events.CountAll}
}

// mappedClaims is how many claims a flush has before it finds them by a map.
const mappedClaims = 8

// claim returns the flush's claim on the counter.
func (f *flush) claim(a *events.Applied) *claim {
	name, claims := nameOf(a), f.claims.handedOut()
	if len(claims) <= mappedClaims {
		for _, c := range claims {
			if c.name == name {
				return c
			}
		}
	} else if c := f.byName[name]; c != nil {
		return c
	}
	f.l.mender.note(a.ID, a.Counter, f.began)
	c := f.claims.next()
	c.begin(a.ID)
	c.name, c.store = name, f.l.store
	c.finest, _ = levels(a.Counter)
	if len(claims) == mappedClaims {
		if f.byName == nil {
			f.byName = map[claimName]*claim{}
		}
		for _, c := range claims {
			f.byName[c.name] = c
		}
	}
	if len(claims) >= mappedClaims {
		f.byName[name] = c
	}
	return c
}

// checksOf returns the rule's limits in the claim on its counter.
func (f *flush) checksOf(c *claim, a *events.Applied) []*check {
	limits := a.Rule.LimitsOf(a.Counter.Feature)
	first := slices.IndexFunc(c.checks, func(check *check) bool { return check.rule == a.Rule })
	if first < 0 {
		first = len(c.checks)
		for _, limit := range limits {
			k := f.checks.next()
			*k = check{
				rule: a.Rule, limit: limit, ceiling: a.Rule.Throttle.Ceiling(limit.N),
				span: f.span(limit.Window, c.finest),
			}
			c.checks = append(c.checks, k)
		}
	}
	return c.checks[first : first+len(limits)]
}

// recall finds whether the hits may add at once. One that can never fit, or whose
// denial is remembered, looks only; so does a check. A hit on a counter that counts
// all hits adds in any case, that it may be counted.
func (f *flush) recall() {
	for _, h := range f.hits.handedOut() {
		switch {
		case h.path != adding:
		case f.checkOnly || f.again:
			h.path = looking
		case !slices.ContainsFunc(h.claims, func(c *claim) bool { return c.name.countAll }):
			f.l.denials.recallHit(h, f.stamp, f.began, f.l.cache)
		}
	}
}

// asksNobody reports whether the hit can be decided without a trip.
func (h *hit) asksNobody() bool {
	return h.path == faulty || h.path == listed ||
		h.path == looking && !slices.ContainsFunc(h.uses, func(u use) bool { return u.recalled == nil })
}

// claimsOf returns the claims of the hits on that path, each once, but for those
// of whose every use a denial is remembered. They are good until it is called again.
func (f *flush) claimsOf(p path) []*claim {
	f.marked++
	f.some = f.some[:0]
	for _, h := range f.hits.handedOut() {
		if h.path != p {
			continue
		}
		for i := range h.uses {
			if u := &h.uses[i]; u.recalled == nil && u.claim.marked != f.marked {
				u.claim.marked = f.marked
				f.some = append(f.some, u.claim)
			}
		}
	}
	if len(f.some) > 0 && f.ctx == nil {
		f.ctx = &tripContext{caller: f.hits.all[0].request.ctx, deadline: f.until}
	}
	return f.some
}

// look decides the hits that look on exact sums, and lets those add that find room.
func (f *flush) look() {
	claims := f.claimsOf(looking)
	var now time.Time
	if len(claims) > 0 {
		now = f.l.now()
	}
	for _, c := range claims {
		c.began = now
		f.remind(c, now)
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

// travel makes the trips of the claims that add or want something, side by side. It
// ends when all have. Those that fail do without the store from then on.
func (f *flush) travel(claims []*claim, now time.Time) {
	f.ops, f.sent = f.ops[:0], f.sent[:0]
	for _, c := range claims {
		switch {
		case f.overloaded:
			f.doWithout(c, now)
		case c.local:
			f.send(c, now)
		case c.travels():
			f.ops, f.sent = append(f.ops, c.pack(c.due())), append(f.sent, c)
		}
	}
	if len(f.ops) == 0 {
		return
	}
	f.l.store.Do(f.ctx, f.ops...)
	for _, c := range f.sent {
		f.arrived(c, c.unpack(c.due(), now))
	}
}

// doWithout has the claim do without the shared store, which too much waits for.
func (f *flush) doWithout(c *claim, now time.Time) {
	if c.local {
		f.send(c, now)
	} else if c.travels() {
		c.unwant()
		f.fail(c, ErrOverload)
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
func (f *flush) send(c *claim, now time.Time) { f.sendOn(f.ctx, c, now) }

func (f *flush) sendOn(ctx context.Context, c *claim, now time.Time) {
	if c.travels() {
		f.arrived(c, c.trip(ctx, c.store, c.due(), now))
	}
}

// arrived notes what the trip has added.
func (f *flush) arrived(c *claim, err error) {
	if c.due() > 0 {
		c.places = append(c.places, place{c.store, c.local, c.op.Receipt, err == nil})
		c.added = true
	}
	if err != nil {
		f.fail(c, err)
	}
}

// remind has the claim use the cache. What its hits have read when they were tried before
// is in it too.
func (f *flush) remind(c *claim, now time.Time) {
	var own time.Time
	if f.again {
		own = f.first
	}
	c.remember(f.l.cache, now, f.closed(), own)
}

// letAdd has a hit add that was looking and has found room.
func (f *flush) letAdd(h *hit) {
	h.path = adding
	h.request.overshoot = overshoot{} // it is over
	for i := range h.uses {
		h.uses[i].recalled = nil
	}
	for _, c := range h.claims {
		full := slices.ContainsFunc(h.uses, func(u use) bool { return u.claim == c && u.enforced() && !u.fits() })
		if !full && !f.overloaded { // who has not looked has seen no room
			f.l.denials.forget(c.id, h.keyOf(c))
		}
	}
}

// add adds the hits to their counters, the finest level first, and reads after
// the adds what bounds their limits; where the bounds leave a limit open, also
// the finer buckets at the window's edge.
func (f *flush) add() {
	for _, h := range f.hits.handedOut() {
		for _, c := range h.claims {
			switch h.path {
			case adding:
				c.adding += h.cost
			case looking:
				c.looked += h.cost
			}
		}
	}
	claims := f.claimsOf(adding)
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
			f.remind(c, now)
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

// fail has the claim do without the shared store. Where a rule says so, this
// process's own counters are asked instead, from the beginning.
func (f *flush) fail(c *claim, err error) {
	f.l.report(err)
	c.err = errors.Join(c.err, err)
	wanted := slices.ContainsFunc(c.checks, func(check *check) bool { return check.rule.OnError == events.OnErrorLocal })
	if c.local || f.l.local == nil || !wanted {
		c.local = false
		return
	}
	c.local, c.store, c.added = true, f.l.local, false
	c.leaveCache()
	c.forgetOpen(f.began)
	// The time for the shared one may be over.
	ctx := &tripContext{caller: f.ctx.caller, deadline: time.Now().Add(f.l.timeout)}
	defer ctx.over()
	if c.adding > 0 {
		c.wantOthers()
		f.sendOn(ctx, c, f.began)
	}
	if c.local {
		c.wantExactly()
		f.sendOn(ctx, c, f.began)
	}
	c.sum()
}

// readable reports whether the claim's sums come from a store.
func (c *claim) readable() bool { return c.err == nil || c.local }
