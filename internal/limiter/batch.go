package limiter

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
)

// A batch is hits that are decided together, with one Moment and one round trip. If it adds, the hits are added to their
// counters; otherwise the counters are only read.
type batch struct {
	limiter *Limiter
	session *fallback
	ctx     *tripContext
	at      Moment
	adds    bool
	hits    []hit
	tallies []*Tally // each counter of the hits once
	index   map[tallyKey]*Tally
	unknown []*Tally // the tallies that cached denials do not answer
	// undoFailed is set if some hits may still count that are not kept.
	undoFailed bool
	undoBegan  time.Time
	moments    int // that each Explanation has; if zero, there are none
}

// A hit is one hit of a batch.
type hit struct {
	request *request
	shares  []share  // one for each of its counters
	answers []answer // of its limits, in the order of the rules
	verdict verdict
	goesOn  bool // the batch does not decide the hit: it is checked, or added, next
}

// A share is a hit as it counts on one counter.
type share struct {
	tally  *Tally
	asks   int64   // the cost that needs room
	adds   int64   // the cost that is added
	add    int     // index in tally.Adds, or -1
	denial *denial // the cached denial that answers the hit instead of the tally, or nil
}

// A tallyKey identifies a tally of a batch. If two versions of the rules disagree on how a counter is kept, or on
// whether denied hits count, each has a tally of its own, which counts the other one in full.
type tallyKey struct {
	counter  events.Counter
	engine   int
	countAll bool
}

// newBatch returns a batch of the requests, which are added or only checked.
func (l *Limiter) newBatch(requests []*request, adds bool) *batch {
	b, _ := l.batches.Get().(*batch)
	if b == nil {
		b = &batch{session: l.newFallback(), index: map[tallyKey]*Tally{}}
	}
	b.limiter, b.adds, b.at = l, adds, l.clock.moment()
	b.session.overloaded = requests[0].overloaded
	deadline := requests[0].deadline
	for _, r := range requests {
		b.join(r)
		if r.deadline.Before(deadline) {
			deadline = r.deadline
		}
	}
	for i := range b.hits { // the tallies have all of their limits now
		b.hits[i].useTallies()
	}
	b.ctx = l.newContext(b.ctx, requests[0].ctx, deadline)
	return b
}

// free makes the batch available to other groups. It keeps only memory.
func (b *batch) free() {
	for i := range b.hits {
		h := &b.hits[i]
		clear(h.shares)
		clear(h.answers)
		*h = hit{shares: h.shares[:0], answers: h.answers[:0]}
	}
	for _, t := range b.tallies {
		clear(t.Limits)
		clear(t.Adds)
		clear(t.Searches)
		*t = Tally{Limits: t.Limits[:0], Adds: t.Adds[:0], Searches: t.Searches[:0]}
	}
	clear(b.unknown)
	clear(b.index)
	b.ctx.free()
	if b.limiter.detached {
		b.ctx = nil
	} else {
		b.ctx.caller = nil
	}
	pool := b.limiter.batches
	*b = batch{session: b.session, ctx: b.ctx, hits: b.hits[:0], tallies: b.tallies[:0], index: b.index, unknown: b.unknown[:0]}
	pool.Put(b)
}

// join adds a request to the batch.
func (b *batch) join(r *request) {
	b.hits = grow(b.hits)
	h := &b.hits[len(b.hits)-1]
	h.request = r
	for i := range r.applied {
		a, u := &r.applied[i], &r.uses[i]
		if len(u.limits) == 0 {
			continue
		}
		t := b.tally(a, u)
		place := h.join(t, u, r.hasParts)
		first := t.addLimits(a, u.limits)
		for j := range u.limits {
			h.answers = append(h.answers, answer{Applied: a, tally: t, share: place, limit: &t.Limits[first+j], index: first + j, part: i, search: -1})
		}
	}
	for i := range h.answers {
		h.answers[i].cost = h.shares[h.answers[i].share].asks
	}
	for i := range h.shares {
		b.plan(h, i)
	}
}

// join adds a use of the counter to the hit, and returns the place of its share. What looks needs room for itself alone.
func (h *hit) join(t *Tally, u *use, hasParts bool) (place int) {
	place = slices.IndexFunc(h.shares, func(s share) bool { return s.tally == t })
	if place < 0 {
		h.shares = append(h.shares, share{tally: t, asks: u.asks, adds: u.adds, add: -1})
		return len(h.shares) - 1
	}
	if !hasParts {
		return place
	}
	s, most := &h.shares[place], int64(MaxPartCost)
	if t.leases {
		most = 1
	}
	s.adds = min(s.adds+u.adds, most)
	s.asks = max(s.asks, s.adds, u.asks)
	return place
}

// plan adds a share of the hit to its tally.
func (b *batch) plan(h *hit, place int) {
	s := &h.shares[place]
	t := s.tally
	t.Demand += max(s.asks, s.adds)
	if t.countAll {
		t.Demand += s.adds // a hit that another limit denies needs the room twice
	}
	if !b.adds || s.adds == 0 {
		return
	}
	s.add = len(t.Adds)
	t.Adds = append(t.Adds, Addition{
		Cost: s.adds, Ends: h.request.ends, Wait: h.longestWait(), Shared: len(h.shares) > 1, Counts: h.isAlwaysKept(place),
	})
}

// longestWait returns for how long the hit waits for its turn at most.
func (h *hit) longestWait() (longest time.Duration) {
	for i := range h.answers {
		if limit := h.answers[i].limit; limit.Enforced {
			longest = max(longest, limit.LongestWait(limit.Ceiling))
		}
	}
	return longest
}

// isAlwaysKept reports whether no limit of the counter can take the hit away from it.
func (h *hit) isAlwaysKept(place int) bool {
	for i := range h.answers {
		a := &h.answers[i]
		if a.share == place && !a.Rule.Shadow && a.Listing != events.Allowed && !a.tally.countAll {
			return false
		}
	}
	return true
}

// tally returns the tally of the rule's counter.
func (b *batch) tally(a *events.Applied, u *use) *Tally {
	key := tallyKey{a.Counter, u.engine, countsAll(*a)}
	t := b.index[key]
	if t == nil {
		b.tallies = grow(b.tallies)
		last := &b.tallies[len(b.tallies)-1]
		if *last == nil {
			*last = new(Tally)
		}
		t = *last
		t.ID, t.Counter, t.Engine, t.countAll, t.leases = a.ID, a.Counter, u.engine, key.countAll, a.Rule.Leases()
		t.version = b.limiter.changes.Of(a.ID).Load()
		b.index[key] = t
	}
	return t
}

// addLimits returns the index of the first limit of the rule. It adds the limits, unless they are there.
func (t *Tally) addLimits(a *events.Applied, limits []events.Limit) (first int) {
	first = slices.IndexFunc(t.Limits, func(limit Limit) bool { return limit.Rule == a.Rule })
	if first >= 0 {
		return first
	}
	first = len(t.Limits)
	for i := range limits {
		t.Limits = append(t.Limits, Limit{Limit: limits[i], Rule: a.Rule, Ceiling: ceiling(a, &limits[i]), Enforced: isEnforced(a)})
	}
	return first
}

func ceiling(a *events.Applied, limit *events.Limit) int64 {
	return a.Rule.Throttle.Ceiling(limit.Most())
}

// recall lets cached denials answer the hits. The tallies that other hits need are unknown.
func (b *batch) recall() {
	for i := range b.hits {
		h := &b.hits[i]
		for j := range h.shares {
			s := &h.shares[j]
			if b.limiter.denials.answer(h, j, b.at) || s.tally.isUnknown {
				continue
			}
			s.tally.isUnknown = true
			b.unknown = append(b.unknown, s.tally)
		}
	}
}

// dropStale drops the cached denials of counters that were read for other hits.
func (b *batch) dropStale() {
	for i := range b.hits {
		h := &b.hits[i]
		isStale := func(s share) bool { return s.denial != nil && s.tally.isRead() }
		if slices.ContainsFunc(h.shares, isStale) {
			h.useTallies()
		}
	}
}

// isRead reports whether the shared store was read for hits that no cached denial answers.
func (t *Tally) isRead() bool { return t.isUnknown && t.Err == nil && !t.failed }

// useTallies lets the tallies answer the hit, except where they failed and a cached denial holds.
func (h *hit) useTallies() {
	for i := range h.answers {
		a := &h.answers[i]
		if s := &h.shares[a.share]; a.denial == nil || s.tally.isRead() {
			s.denial, a.denial, a.limit = nil, nil, &a.tally.Limits[a.index]
		}
	}
}

// undo undoes the hits that are not kept. It has time of its own, because they have been added. Cached denials from
// before the batch do not hold any more.
func (b *batch) undo() {
	l := b.limiter
	b.undoBegan = time.Now()
	b.ctx = l.newContext(b.ctx, b.ctx.caller, b.undoBegan.Add(l.timeout))
	if err := b.session.Undo(b.ctx); err != nil {
		b.undoFailed = true
		l.reportError(err)
	}
	for _, t := range b.tallies {
		if len(t.Adds) == 0 {
			continue
		}
		if version := l.changes.Of(t.ID).Add(1); version == t.version+1 {
			t.version = version // the batch's own denials include its adds
		}
	}
}

// finish ends the batch: it answers the hits that are decided, and appends the other ones to next.
func (b *batch) finish(next []*request) []*request {
	l := b.limiter
	failed := false
	for i := range b.hits {
		h := &b.hits[i]
		h.goesOn = !b.adds && (h.verdict == admitted || h.countsAll()) || b.adds && b.isRejected(h)
		failed = failed || len(h.shares) > 1 && h.hasFailed()
	}
	if failed {
		l.queues.stayApart()
	}
	l.stats.count(b)
	b.search()
	for i := range b.hits {
		h, r := &b.hits[i], b.hits[i].request
		switch {
		case !b.adds && h.verdict == admitted:
			r.hadRoom = true
			l.denials.forget(h)
		case h.verdict == denied && !h.goesOn && (!b.adds || h.isSettled()):
			l.denials.remember(b, h)
		}
		if h.verdict != unchanged && (b.adds || !h.goesOn) {
			b.conclude(h)
		}
		if h.goesOn {
			r.rejected = r.rejected || b.adds
			next = append(next, r)
		}
	}
	for i := range b.hits {
		if h := &b.hits[i]; !h.goesOn {
			if h.verdict == unchanged {
				h.request.repeatDenial()
			}
			l.done(h.request, len(b.hits))
		}
	}
	b.free()
	return next
}

// isRejected reports whether the hit was added, denied and undone, so that a check decides it, if there is time. A hit
// that may still count is not added again.
func (b *batch) isRejected(h *hit) bool {
	return h.verdict == denied && !h.countsAll() && !h.hasFailed() && !b.undoFailed && !h.isSettled() && !h.request.isLate(b.nextAddEnds())
}

// nextAddEnds returns when a check and another add would end, if they took as long as the undo, and half of it more. A
// check that breaks off does not find out when the hit fits, and an add that breaks off may count a denied hit.
func (b *batch) nextAddEnds() time.Time {
	now := time.Now()
	return now.Add(now.Sub(b.undoBegan) * 5 / 2)
}

// isSettled reports whether a counter denies the hit by a count that no undone hit is part of, so that the denial is
// final.
func (h *hit) isSettled() bool {
	return slices.ContainsFunc(h.answers, func(a answer) bool { return a.tally.Settled && a.denies() })
}

// stats counts decisions. What all callers write is on no cache line that others read.
type stats struct {
	_                            [64]byte
	batches, hits, cachedDenials atomic.Int64
	_                            [64]byte
}

// count counts the hits of the batch that are not counted yet.
func (s *stats) count(b *batch) {
	var asked, recalled int64
	for i := range b.hits {
		h, r := &b.hits[i], b.hits[i].request
		switch {
		case r.counted || r.overloaded || b.at.Peek || len(h.answers) == 0:
			continue
		case !b.adds && !slices.ContainsFunc(h.shares, func(s share) bool { return s.denial == nil }):
			recalled++
		default:
			asked++
		}
		r.counted = true
	}
	if asked > 0 {
		s.batches.Add(1)
		s.hits.Add(asked)
	}
	if recalled > 0 {
		s.cachedDenials.Add(recalled)
	}
}

// Stats is what a Limiter has done so far.
type Stats struct {
	// Batches is the number of batches that were decided with the store, and BatchedHits the number of hits in them.
	// A retry is not counted again.
	Batches, BatchedHits int64
	// CachedDenials is the number of hits that a cached denial denied, without a round trip.
	CachedDenials int64
}

// grow returns s with one more element, which is as an earlier use left it.
func grow[T any](s []T) []T { return slices.Grow(s, 1)[:len(s)+1] }

// A tripContext has the values of the caller's context and its own deadline. The caller cannot cancel it, because the
// fate of adds must be known, so that they can be undone.
//
// Its timer is set only for a store that waits for Done. Most stores end round trips by the deadline, and a timer for
// each hit would cost more than the hit.
type tripContext struct {
	caller   context.Context
	deadline time.Time

	mu    sync.Mutex      // protects timed and stop
	timed context.Context // nil until Done is called
	stop  context.CancelFunc
}

// newContext returns a context. It uses the memory of the old one, which may be nil, unless the store may still use it.
func (l *Limiter) newContext(old *tripContext, caller context.Context, deadline time.Time) *tripContext {
	if old != nil {
		old.free()
	}
	if old == nil || l.detached {
		old = new(tripContext)
	}
	old.caller, old.deadline = caller, deadline
	return old
}

func (c *tripContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *tripContext) Value(key any) any { return c.caller.Value(key) }

func (c *tripContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil {
		c.timed, c.stop = context.WithDeadline(context.Background(), c.deadline)
	}
	return c.timed.Done()
}

func (c *tripContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.timed != nil:
		return c.timed.Err()
	case !time.Now().Before(c.deadline):
		return context.DeadlineExceeded
	}
	return nil
}

// free stops the timer.
func (c *tripContext) free() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop != nil {
		c.stop()
		c.timed, c.stop = nil, nil
	}
}
