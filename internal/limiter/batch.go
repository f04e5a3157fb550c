package limiter

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
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
	marked   uint64          // with what counters are marked that countersOn has found
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
	costs    []partCost      // on each of them, if it has parts
	limits   []limitEval     // its limits, in the order of the rules
	verdict  verdict
	retries  bool
	maxWait  time.Duration // for its turn, at the most
}

// costOn returns the cost for which the hit needs room on the counter: on one of leases it is one lease. A limit of 0 has
// no room for a free hit either.
func (h *hit) costOn(c *counterState) int64 {
	switch {
	case c.engine.Tick() == 0:
		return 1
	case len(h.costs) == 0 && h.cost == 0 && c.deniesAll:
		return 1
	case len(h.costs) == 0:
		return h.cost
	}
	return h.costs[slices.Index(h.counters, c)].asks
}

// addsTo returns what of the cost on the counter the hit adds to it: 0 where it only looks.
func (h *hit) addsTo(c *counterState) int64 {
	switch {
	case c.engine.Tick() == 0 && len(h.costs) == 0:
		return 1
	case len(h.costs) == 0:
		return h.cost
	}
	return min(h.costs[slices.Index(h.counters, c)].adds, h.costOn(c))
}

// partCost is what a part of a hit, or all of them on one counter, asks room for and adds.
type partCost struct{ asks, adds int64 }

// join adds up what parts add, up to MaxPartCost. What looks asks for room for itself alone.
func (p *partCost) join(other partCost) {
	p.adds = min(p.adds+other.adds, MaxPartCost)
	p.asks = max(p.asks, p.adds, other.asks)
}

// until returns when what the hit reserves ends, or 0.
func (h *hit) until() int64 {
	if h.request.reserved == 0 {
		return 0
	}
	return h.request.began.Add(h.request.reserved).UnixMilli()
}

// note notes what the next of the hits decided on the counter has reserved there, until the hit's turn at the
// least; or that it has reserved nothing, since the shared store has failed, or the counter has no room for it.
func (h *hit) note(c *counterState, name func(string) string) {
	r := c.hits[c.decided].Reserved
	if wait := waitOf(h.limits); r.Ends == 0 && wait > 0 {
		r.Turn, r.Ends = true, max(c.moment.Now.UnixMilli(), c.moment.Stamp*1000)+wait.Milliseconds()
	}
	if r.ID == 0 || r.Ends == 0 || c.err != nil {
		for i := range h.limits {
			if u := &h.limits[i]; u.counter == c {
				u.unreserved = h.request.reserved > 0 || c.engine.Tick() == 0
			}
		}
		return
	}
	if name != nil {
		r.Counter = name(r.Counter)
	}
	r.Engine, r.Retention, r.Precision = c.name.engine, c.name.counter.Remembered(), c.name.counter.Precision
	h.request.result.Reserved = append(h.request.result.Reserved, r)
}

// limitEval is one limit as it answers one hit.
type limitEval struct {
	ruling
	counter *counterState
	window  *limitWindow
	part    int          // of the hit
	cached  *cachedLimit // what a cached denial found, where there is one

	unreserved bool // an admitted hit: see events.LimitState

	count int64
	exact bool
	ahead int64         // of it, the cost of hits that were admitted before this one in the batch
	wait  time.Duration // of a hit that fits
	reset time.Duration
	// mayFit: the limit has room for the hit if reservations or leases are given back.
	mayFit bool
	own    time.Duration // what it would be if the limit were not elastic
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

// limitWindow is one limit of a counter, and what its window holds.
type limitWindow struct {
	rule     *events.Rule
	limit    events.Limit
	ceiling  int64
	enforced bool
	index    int           // among those of the counter
	final    int64         // what no rollback can take away of its count, where that was asked
	maxWait  time.Duration // of a hit for its turn, at the most
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// newBatch returns a batch of the requests, and stamps it.
func (l *Limiter) newBatch(moment engine.Moment, requests ...*request) *batch {
	f := batches.Get().(*batch)
	f.l, f.moment, f.began, f.until, f.caller = l, moment, moment.Now, requests[0].until, requests[0].ctx
	f.moment.Stamp, f.moment.Latest = l.stamps.next(moment.Now, l.grace)
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
		*h = hit{counters: h.counters[:0], costs: h.costs[:0], limits: h.limits[:0]}
	}
	f.hits.reset()
	f.counters.free()
	clear(f.some)
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
		at := slices.Index(h.counters, c)
		if at < 0 {
			at, h.counters = len(h.counters), append(h.counters, c)
			if len(r.costs) > 0 {
				h.costs = append(h.costs, partCost{})
			}
		}
		if len(r.costs) > 0 {
			h.costs[at].join(r.costs[i])
		}
		if a.Listing == events.Denied && !a.Rule.Shadow {
			h.path = listed
		}
		for _, check := range f.counters.windowsOf(c, a, limits) {
			of := ruling{rule: a.Rule, listing: a.Listing, overridden: a.Overrides(check.limit)}
			h.limits = append(h.limits, limitEval{counter: c, window: check, part: i, ruling: of})
			h.maxWait = max(h.maxWait, check.maxWait)
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
	counters := f.countersOn(looking)
	var now time.Time
	if len(counters) > 0 {
		now = f.l.now()
	}
	for _, c := range counters {
		f.begin(c, now)
		c.open().Look()
	}
	f.travel(counters, now, true)
	f.looked = len(counters) > 0
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
				adds := h.addsTo(c)
				c.adding += adds
				c.looked += h.costOn(c) - adds
				if adds > 0 {
					c.hits = append(c.hits, engine.Hit{Cost: adds, Pending: len(h.counters) > 1, Counts: limitsOn{h, c}.counts(), Ends: h.until(), Waits: h.maxWait})
				}
			case looking:
				c.looked += h.costOn(c)
			}
		}
	}
	// Not counters whose server has just failed to answer a look.
	counters := slices.DeleteFunc(f.countersOn(adding), func(c *counterState) bool { return !c.readable() })
	now := f.began
	if f.looked {
		now = f.l.now()
	}
	for _, c := range counters {
		f.begin(c, now)
		if len(c.hits) == 0 {
			c.open().Look()
			continue
		}
		c.open().Add(c.hits, c.most())
	}
	f.travel(counters, now, true)
}

// settle decides the hits of the batch, which have looked.
func (f *batch) settle(try int) {
	f.add()
	f.decide()
	f.counters.later(f.l)
	f.follow(f.countersOn(adding))
	f.counters.touch(f.l.changes)
	if f.allow() {
		return
	}
	retry := f.l.retryPolicy()
	if open := retry.contended(f.hits.handedOut(), f.moment); len(open) > 0 {
		f.readFinal(open)
		retry.settle(open, try, f.l.now())
	}
	f.findResets()
	for _, h := range f.hits.handedOut() {
		f.l.denials.rememberHit(h, f.moment)
	}
}

// allow reports whether all limits allow their hits: none is searched, and no denial cached.
func (f *batch) allow() bool {
	for _, h := range f.hits.handedOut() {
		for i := range h.limits {
			if !h.limits[i].allows {
				return false
			}
		}
	}
	return true
}

// counterSet has the counters of a batch, each once, and their limits.
type counterSet struct {
	all     arena[counterState]
	byName  map[counterKey]*counterState
	windows arena[limitWindow]
}

// counterKey tells the counters of a batch apart: by the counter, the engine that keeps it, and
// how it is counted. Hits of two generations of rules may differ in that. Then each has a
// counterState of its own, which counts the other in full.
type counterKey struct {
	counter  events.Counter
	engine   int // which of the limiter's
	countAll bool
}

// mappedCounters is how many counters a batch has before it finds them by a map.
const mappedCounters = 8

// of returns the counter, and whether it is new in the set.
func (s *counterSet) of(a *events.Applied, by int) (c *counterState, isNew bool) {
	name, known := counterKey{a.Counter, by, a.Rule.Count == events.CountAll}, s.all.handedOut()
	if len(known) <= mappedCounters {
		for _, c := range known {
			if c.name == name {
				return c, false
			}
		}
	} else if c := s.byName[name]; c != nil {
		return c, false
	}
	c = s.all.next()
	c.id, c.name = a.ID, name
	if len(known) == mappedCounters {
		if s.byName == nil {
			s.byName = map[counterKey]*counterState{}
		}
		for _, c := range known {
			s.byName[c.name] = c
		}
	}
	if len(known) >= mappedCounters {
		s.byName[name] = c
	}
	return c, true
}

// windowsOf returns the windows of the limits that a rule has on the counter.
func (s *counterSet) windowsOf(c *counterState, a *events.Applied, limits []events.Limit) []*limitWindow {
	rule := a.Rule
	first := slices.IndexFunc(c.windows, func(check *limitWindow) bool { return check.rule == rule })
	if first < 0 {
		first = len(c.windows)
		for _, limit := range limits {
			k := s.windows.next()
			of := ruling{rule: rule, listing: a.Listing}
			*k = limitWindow{rule: rule, limit: limit, ceiling: rule.Throttle.Ceiling(limit.Most()), enforced: of.enforced(), index: len(c.windows)}
			c.deniesAll = c.deniesAll || k.enforced && k.ceiling == 0
			if k.enforced {
				k.maxWait = limit.LongestWait(k.ceiling)
			}
			c.windows = append(c.windows, k)
		}
	}
	return c.windows[first : first+len(limits)]
}

// touch ends the cached denials of the counters that the batch has added to. The denials that
// the batch is about to cache know of its adds.
func (s *counterSet) touch(changes *engine.Changes) {
	for _, c := range s.all.handedOut() {
		if !c.added {
			continue
		}
		if touched := changes.Of(c.id).Add(1); touched == c.touched+1 {
			c.touched = touched
		}
	}
}

// later begins what no hit waits for.
func (s *counterSet) later(l *Limiter) {
	for _, c := range s.all.handedOut() {
		begin(c.shared, l.store)
		begin(c.alone, l.local)
	}
}

// hasFailed reports whether one of several counters could not be asked.
func (s *counterSet) hasFailed() bool {
	known := s.all.handedOut()
	return len(known) > 1 && slices.ContainsFunc(known, func(c *counterState) bool { return c.err != nil })
}

// free gives back what the set holds.
func (s *counterSet) free() {
	for _, c := range s.all.handedOut() {
		clear(c.windows)
		for _, session := range [...]engine.Session{c.shared, c.alone} {
			if session != nil {
				session.End()
			}
		}
		*c = counterState{windows: c.windows[:0], hits: c.hits[:0]}
	}
	for _, check := range s.windows.handedOut() {
		check.rule, check.limit = nil, events.Limit{}
	}
	s.all.reset()
	s.windows.reset()
	clear(s.byName)
}

// arena hands out values that stay where they are, and takes them all back at once
// to hand them out again.
type arena[T any] struct {
	all  []*T
	used int
}

// next returns a value as it was left.
func (a *arena[T]) next() *T {
	if a.used == len(a.all) {
		a.all = append(a.all, new(T))
	}
	a.used++
	return a.all[a.used-1]
}

func (a *arena[T]) handedOut() []*T { return a.all[:a.used] }

func (a *arena[T]) reset() { a.used = 0 }
