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
	l         *Limiter
	began     time.Time
	stamp     int64
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
	denied              // it is on a deny list: nothing is asked, nothing added
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
	allowed bool
	refused bool // as unavailable

	doubtful  bool // denied for what may have been of the moment
	unsettled bool // and tries again
	goesBy    bool // denied by what others have found to stand
	stale     bool // its store has failed since it was denied: that stands
}

// use is one limit as a hit uses it.
type use struct {
	claim    *claim
	check    *check
	listing  events.Listing
	recalled *stood // how it stood when the counter denied, where that is remembered

	fits  bool // the sum with the hit's cost is within the ceiling
	count int64
	exact bool
	reset Wait
	own   Wait // what it would be if the limit were not elastic
	state LimitState
	// Nobody could say how it stands when it was weighed. A store that failed later, for
	// others, has said it before.
	unknown bool
}

// enforced reports whether the limit can deny the hit by itself.
func (u *use) enforced() bool {
	return !u.check.rule.Shadow && u.listing != events.Allowed && u.check.rule.Throttle.Kind != events.Elastic
}

// failed reports whether the store was asked how the limit stands, and failed.
func (u *use) failed() bool { return u.claim.err != nil && u.recalled == nil }

// isLocal reports whether this process's own counters say how the limit stands.
func (u *use) isLocal() bool {
	return u.claim.local && u.check.rule.OnError == events.OnErrorLocal && u.recalled == nil
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
}

var flushes = sync.Pool{New: func() any { return new(flush) }}

// newFlush returns a flush of the requests, stamped now.
func (l *Limiter) newFlush(now time.Time, requests ...*request) *flush {
	f := flushes.Get().(*flush)
	f.l, f.began, f.until = l, now, requests[0].until
	f.stamp = l.nextStamp(f.began)
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
			h.path = denied
		}
		for _, check := range f.checksOf(c, a) {
			h.uses = append(h.uses, use{claim: c, check: check, listing: a.Listing})
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
				span: f.l.spanOf(f.stamp, limit.Window, c.finest, f.l.ahead),
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
			f.recallHit(h)
		}
	}
}

func (f *flush) recallHit(h *hit) {
	for i := range h.uses {
		if u := &h.uses[i]; u.enforced() && h.cost > u.check.ceiling {
			h.path = looking
		}
	}
	for _, c := range h.claims {
		enforced := slices.ContainsFunc(h.uses, func(u use) bool { return u.claim == c && u.enforced() })
		if !enforced {
			continue
		}
		found, wary := f.l.denials.recall(c.id, func() denialKey { return h.keyOf(c) }, f.stamp, f.began, f.l.cache)
		if found == nil && !wary {
			continue
		}
		h.path = looking
		if found != nil {
			h.recall(c, found)
		}
	}
}

// recall has the hit's uses of the claim stand as they did.
func (h *hit) recall(c *claim, found *denial) {
	next := 0
	for i := range h.uses {
		if u := &h.uses[i]; u.claim == c {
			u.recalled = &found.limits[next]
			next++
		}
	}
}

// asksNobody reports whether the hit can be decided without a trip.
func (h *hit) asksNobody() bool {
	return h.path == faulty || h.path == denied ||
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
		f.evaluate(h)
		if !f.checkOnly && h.allowed {
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

// closed returns the second before which buckets have to end to be closed.
func (f *flush) closed() int64 { return f.stamp - f.l.open }

// letAdd has a hit add that was looking and has found room.
func (f *flush) letAdd(h *hit) {
	h.path = adding
	h.request.crowd = crowd{} // it has left
	for i := range h.uses {
		h.uses[i].recalled = nil
	}
	for _, c := range h.claims {
		full := slices.ContainsFunc(h.uses, func(u use) bool { return u.claim == c && u.enforced() && !u.fits })
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
		c.nameAdds(f)
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

// wantOthers wants what bounds the limits, beside what the adds return.
func (c *claim) wantOthers() {
	for _, check := range c.checks {
		for bucket := range check.span.others {
			c.want(bucket)
		}
	}
}

// nameAdds names the buckets that the claim's hits add to.
func (c *claim) nameAdds(f *flush) {
	if len(c.adds) > 0 {
		return
	}
	finest, coarsest := levels(c.name.counter)
	for l := finest; l <= coarsest; l++ {
		bucket := BucketAt(l, f.stamp)
		c.add(bucket, bucket.Expires(retention(c.name.counter), f.l.grace))
	}
}

// wantExactly wants the buckets that the exact sums of the limits need.
func (c *claim) wantExactly() {
	for _, check := range c.checks {
		c.tiles = check.span.cover(c.tiles[:0], c.finest)
		c.wantAll(c.tiles)
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

// wantOpenEdges wants the buckets at the windows' edges of those limits that some
// hit of the flush may fit and may not, and that are not exact yet. It reports
// whether there is such a limit.
func (c *claim) wantOpenEdges() (open bool) {
	most := c.adding + c.looked
	if c.name.countAll {
		most += c.adding // those that others deny come again
	}
	for _, check := range c.checks {
		if check.lo < check.ceiling && check.hi+most > check.ceiling && check.lo != check.hi {
			open = true
			c.tiles = check.span.split(c.tiles[:0], c.finest)
			c.wantAll(c.tiles)
		}
	}
	return open
}

// bound sets the bounds of all limits.
func (c *claim) bound() {
	if !c.readable() {
		return
	}
	for _, check := range c.checks {
		check.lo, check.hi = c.bounds(&check.span)
	}
}

// sum makes the sums of those limits exact whose edges are known.
func (c *claim) sum() {
	for _, check := range c.checks {
		c.tiles = check.span.cover(c.tiles[:0], c.finest)
		if exact, known := c.exact(c.tiles); known {
			check.lo, check.hi = exact, exact
		}
	}
}
