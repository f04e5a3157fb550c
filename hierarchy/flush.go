package hierarchy

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/counterd/counterd/events"
)

// flush is a list of hits that are decided together, with one stamp and one trip
// for each of their counters.
type flush struct {
	l         *Limiter
	ctx       context.Context
	began     time.Time
	stamp     int64
	until     time.Time // when the wait for the store is over
	checkOnly bool
	again     bool // its hits have been denied before, by a store that answered
	hits      []*hit
	claims    map[string]*claim // by the counter's ID
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
	path    path
	err     error
	cost    int64
	claims  []*claim // its counters
	uses    []use    // its limits, in the order of the rules
	allowed bool
	refused bool // as unavailable

	doubtful  bool // denied for what may have been of the moment
	unsettled bool // and tries again
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
	state LimitState
}

// enforced reports whether the limit can deny the hit by itself.
func (u *use) enforced() bool {
	return !u.check.rule.Shadow && u.listing != events.Allowed && u.check.rule.Throttle.Kind != events.Elastic
}

// failed reports whether the store could not say how the limit stands, nor this
// process's own counters in its place.
func (u *use) failed() bool {
	return u.claim.err != nil && !(u.claim.local && u.check.rule.OnError == events.OnErrorLocal)
}

// claim is one counter with the limits of all rules on it.
type claim struct {
	counter  events.Counter
	id       string
	finest   Level
	countAll bool
	checks   []*check

	store  Store     // that is asked: the shared one, or after its failure the local one
	local  bool      // it is the local one
	err    error     // why the shared one could not be asked
	began  time.Time // when the trip that decided did
	adding int64     // cost of the flush's hits that add to it
	places []place   // where that was added
	known  standing  // values of buckets, without what the flush added
	taken  int64     // of what the flush added, what stays
	stuck  bool      // what should have been taken back was not
}

// place is a store with the buckets, finest first, whose adds it acknowledged.
type place struct {
	store   Store
	buckets []uint64
}

// check is one limit of a claim.
type check struct {
	rule    *events.Rule
	limit   events.Limit
	ceiling int64
	span    span
	lo, hi  int64 // what others hold of the window: at least, and at most
}

// newFlush resolves the hits: their rules, counters and limits.
func (l *Limiter) newFlush(ctx context.Context, hits []Hit, until time.Time) *flush {
	began := l.now()
	f := &flush{l: l, ctx: ctx, until: until, began: began, stamp: l.nextStamp(began), claims: map[string]*claim{}}
	for _, h := range hits {
		f.hits = append(f.hits, f.resolve(h))
	}
	return f
}

// CheckCost returns a *RangeError for what a hit cannot cost.
func CheckCost(cost int64) error {
	if cost < 1 || cost > MaxCost {
		return outOfRange(ArgCost, "it is 1 to %d", MaxCost)
	}
	return nil
}

// resolve finds the hit's counters and limits, and its path.
func (f *flush) resolve(h Hit) *hit {
	rules, err := h.Event.Applying(h.Features)
	if err = errors.Join(err, CheckCost(h.Cost)); err != nil {
		return &hit{path: faulty, err: err}
	}
	r := &hit{path: adding, cost: h.Cost}
	for _, rule := range rules {
		counter, err := h.Event.CounterOf(rule, h.Features)
		if err != nil {
			return &hit{path: faulty, err: err}
		}
		c, checks := f.claim(counter, rule)
		if !slices.Contains(r.claims, c) {
			r.claims = append(r.claims, c)
		}
		listing := rule.Listed(h.Features)
		if listing == events.Denied && !rule.Shadow {
			r.path = denied
		}
		for _, check := range checks {
			r.uses = append(r.uses, use{claim: c, check: check, listing: listing})
		}
	}
	if r.path != denied {
		f.recall(r)
	}
	return r
}

// claim returns the flush's claim on the counter, and the rule's limits in it.
func (f *flush) claim(counter events.Counter, rule *events.Rule) (*claim, []*check) {
	id := counter.ID()
	c := f.claims[id]
	if c == nil {
		c = &claim{counter: counter, id: id, countAll: rule.Count == events.CountAll, store: f.l.store, known: standing{}}
		c.finest, _ = levels(counter)
		f.claims[id] = c
	}
	var checks []*check
	for _, check := range c.checks {
		if check.rule == rule {
			checks = append(checks, check)
		}
	}
	if checks == nil {
		for _, limit := range rule.LimitsOf(counter.Feature) {
			checks = append(checks, &check{
				rule: rule, limit: limit, ceiling: rule.Throttle.Ceiling(limit.N),
				span: f.l.spanOf(f.stamp, limit.Window, c.finest, f.l.ahead),
			})
		}
		c.checks = append(c.checks, checks...)
	}
	return c, checks
}

// recall finds whether the hit may add at once. One that can never fit, or whose
// denial is remembered, looks only; so does a check. A hit on a counter that counts
// all hits adds in any case, that it may be counted.
func (f *flush) recall(h *hit) {
	if f.checkOnly {
		h.path = looking
		return
	}
	if slices.ContainsFunc(h.claims, func(c *claim) bool { return c.countAll }) {
		return
	}
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
		found, wary := f.l.denials.recall(keyOf(c, h.cost), f.began)
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
	for i := range h.uses {
		u := &h.uses[i]
		if u.claim == c {
			u.recalled = &found.limits[slices.Index(c.checks, u.check)]
		}
	}
}

// claimsOf returns the claims of the hits on that path, each once, but for those
// of whose every use a denial is remembered.
func (f *flush) claimsOf(p path) []*claim {
	var claims []*claim
	seen := map[*claim]bool{}
	for _, h := range f.hits {
		if h.path != p {
			continue
		}
		for _, u := range h.uses {
			if u.recalled == nil && !seen[u.claim] {
				seen[u.claim] = true
				claims = append(claims, u.claim)
			}
		}
	}
	return claims
}

// look decides the hits that look on exact sums, and lets those add that find room.
func (f *flush) look() {
	sideBySide(f.claimsOf(looking), func(c *claim) {
		c.began = f.l.now()
		f.ask(c, func() error { return f.read(c, c.exactBuckets()) })
		c.sum()
	})
	for _, h := range f.hits {
		if h.path != looking {
			continue
		}
		f.evaluate(h)
		if !f.checkOnly && h.allowed {
			f.letAdd(h)
		}
	}
}

// letAdd has a hit add that was looking and has found room.
func (f *flush) letAdd(h *hit) {
	h.path = adding
	for i := range h.uses {
		h.uses[i].recalled = nil
	}
	for _, c := range h.claims {
		f.l.denials.forget(keyOf(c, h.cost))
	}
}

// add adds the hits to their counters, the finest level first, and reads after
// the adds what bounds their limits; where the bounds leave a limit open, also
// the finer buckets at the window's edge.
func (f *flush) add() {
	for _, h := range f.hits {
		if h.path == adding {
			for _, c := range h.claims {
				c.adding += h.cost
			}
		}
	}
	sideBySide(f.claimsOf(adding), func(c *claim) {
		if !c.readable() {
			return // its server has just failed to answer a look
		}
		c.began = f.l.now()
		f.ask(c, func() error {
			c.known = standing{}
			return f.addAndRead(c)
		})
		c.bound()
		if edge := c.openEdges(); c.readable() && len(edge) > 0 {
			f.ask(c, func() error { return f.read(c, edge) })
		}
		c.sum()
	})
}

// addAndRead makes the trip of a claim that hits add to.
func (f *flush) addAndRead(c *claim) error {
	t := newTrip()
	defer t.free()
	var added, others []Bucket
	for bucket := range BucketsOf(c.counter, f.stamp) {
		added = append(added, bucket)
		t.adds = append(t.adds, bucket.ID())
		t.expires = append(t.expires, bucket.Expires(retention(c.counter), f.l.grace))
	}
	for _, check := range c.checks {
		for bucket := range check.span.others {
			if !slices.Contains(others, bucket) {
				others = append(others, bucket)
				t.reads = append(t.reads, bucket.ID())
			}
		}
	}
	ctx, cancel := f.tripContext()
	defer cancel()
	landed, err := t.make(ctx, c.store, c.id, c.adding)
	c.places = append(c.places, place{c.store, slices.Clone(t.adds[:landed])})
	if err != nil {
		return err
	}
	for i, bucket := range added {
		c.known[bucket] = t.values[i] - c.adding
	}
	for i, bucket := range others {
		c.known[bucket] = t.values[len(added)+i]
	}
	return nil
}

// read reads those of the buckets that are not known yet, in one trip.
func (f *flush) read(c *claim, buckets []Bucket) error {
	t := newTrip()
	defer t.free()
	var unknown []Bucket
	asked := map[Bucket]bool{}
	for _, bucket := range buckets {
		if _, known := c.known[bucket]; !known && !asked[bucket] {
			asked[bucket] = true
			unknown = append(unknown, bucket)
			t.reads = append(t.reads, bucket.ID())
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	ctx, cancel := f.tripContext()
	defer cancel()
	if _, err := t.make(ctx, c.store, c.id, 0); err != nil {
		return err
	}
	for i, bucket := range unknown {
		c.known[bucket] = t.values[i]
	}
	return nil
}

// ask makes a trip of the claim. Where it fails and a rule says so, this
// process's own counters are asked instead, from the beginning.
func (f *flush) ask(c *claim, trip func() error) {
	err := trip()
	if err == nil {
		return
	}
	f.l.report(err)
	f.fail(c, err)
}

// fail has the claim do without the shared store.
func (f *flush) fail(c *claim, err error) {
	c.err = errors.Join(c.err, err)
	wanted := slices.ContainsFunc(c.checks, func(check *check) bool { return check.rule.OnError == events.OnErrorLocal })
	if c.local || f.l.local == nil || !wanted {
		c.local = false
		return
	}
	c.local, c.store, c.known = true, f.l.local, standing{}
	err = nil
	if c.adding > 0 {
		err = f.addAndRead(c)
	}
	if err == nil {
		err = f.read(c, c.exactBuckets())
	}
	if err != nil {
		f.l.report(err)
		c.local = false
		return
	}
	c.sum()
}

// readable reports whether the claim's sums come from a store.
func (c *claim) readable() bool { return c.err == nil || c.local }

// tripContext bounds the trips of the decision. That a caller leaves does not end
// them: what has been added has to be known, to be taken back.
func (f *flush) tripContext() (context.Context, context.CancelFunc) {
	until := f.until
	if deadline, bounded := f.ctx.Deadline(); bounded && deadline.Before(until) {
		until = deadline
	}
	return context.WithDeadline(context.WithoutCancel(f.ctx), until)
}

// exactBuckets returns all buckets that the exact sums of the limits need.
func (c *claim) exactBuckets() []Bucket {
	var buckets []Bucket
	for _, check := range c.checks {
		buckets = slices.AppendSeq(buckets, check.span.cover(c.finest).Buckets())
	}
	return buckets
}

// openEdges returns the buckets at the windows' edges of those limits that some
// hit of the flush may fit and may not, and that are not exact yet.
func (c *claim) openEdges() []Bucket {
	var buckets []Bucket
	for _, check := range c.checks {
		if check.lo < check.ceiling && check.hi+c.adding > check.ceiling && check.lo != check.hi {
			buckets = slices.AppendSeq(buckets, check.span.split(c.finest).Buckets())
		}
	}
	return buckets
}

// bound sets the bounds of all limits.
func (c *claim) bound() {
	for _, check := range c.checks {
		if c.readable() {
			check.lo, check.hi = c.known.bounds(check.span)
		}
	}
}

// sum makes the sums of those limits exact whose edges are known.
func (c *claim) sum() {
	for _, check := range c.checks {
		if exact, known := c.known.exact(check.span, c.finest); known {
			check.lo, check.hi = exact, exact
		}
	}
}
