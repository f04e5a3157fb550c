package hierarchy

import (
	"errors"
	"slices"
	"time"

	"github.com/counterd/counterd/events"
)

// errLate is why a hit is not admitted that took longer than the grace allows.
var errLate = errors.New("hierarchy: the decision took longer than half the grace")

// decide folds the verdicts: the hits that were added, in their order. A denied
// one is skipped by those after it.
func (f *flush) decide() {
	late := !f.checkOnly && !f.l.trusted(f.began, f.stamp)
	for _, h := range f.hits.handedOut() {
		switch h.path {
		case listed:
			h.refuse()
		case adding:
			h.evaluate(f.again)
			if late && h.verdict == admitted {
				f.distrust(h)
			}
			for _, c := range h.claims {
				if h.verdict == admitted || c.name.countAll {
					c.taken += h.cost
				}
			}
		}
	}
	if hits := f.hits.handedOut(); len(hits) > 1 {
		for _, h := range hits {
			h.putBehind(f.again)
		}
	}
}

// putBehind has a denied hit stand behind all that were admitted with it: what it is told is
// so when it is told, and what is remembered of it stays true. That it comes last denies it
// all the more.
func (h *hit) putBehind(again bool) {
	if !h.isDenied() || !h.isAhead() {
		return
	}
	before := slices.Clone(h.uses)
	for i := range h.uses {
		if u := &h.uses[i]; u.claim.taken > 0 {
			u.recalled = nil
		}
	}
	h.charge(-1)
	h.evaluate(again)
	h.charge(1)
	if !h.isDenied() { // by what the store has said since it looked; it has not added
		copy(h.uses, before)
		h.verdict = denied
	}
}

// isAhead reports whether the hit does not know of all that was admitted with it.
func (h *hit) isAhead() bool {
	ahead := false
	for i := range h.uses {
		u := &h.uses[i]
		if u.claim.err != nil {
			return false
		}
		taken := u.claim.taken
		if u.claim.name.countAll && h.path == adding {
			taken -= h.cost
		}
		ahead = ahead || taken > 0 && (u.recalled != nil || u.count != u.check.hi+taken)
	}
	return ahead
}

// charge adds what a denied hit leaves on counters of all hits, so many times.
func (h *hit) charge(times int64) {
	for _, c := range h.claims {
		if c.name.countAll && h.path == adding {
			c.taken += times * h.cost
		}
	}
}

// isWeighed reports whether the hit's limits decide it.
func (h *hit) isWeighed() bool { return h.path == looking || h.path == adding }

// isDenied reports whether limits deny the hit.
func (h *hit) isDenied() bool {
	return h.isWeighed() && (h.verdict == denied || h.verdict == contended)
}

// evaluate decides one hit on the sums of its claims.
func (h *hit) evaluate(again bool) {
	for i := range h.uses {
		h.uses[i].weigh(h.cost)
	}
	h.verdict = fold(h.uses)
	if again && slices.ContainsFunc(h.claims, func(c *claim) bool { return c.err != nil }) {
		h.verdict = asBefore
	}
}

// weigh finds the outcome of one limit for a hit of that cost.
func (u *use) weigh(cost int64) {
	c := u.check
	u.source = u.sourceNow()
	switch {
	case u.source == ofDenial:
		u.count, u.exact, u.outcome = u.recalled.count, u.recalled.exact, u.recalled.outcome
	case u.source == ofNone && cost <= c.ceiling:
		u.count, u.exact, u.outcome = 0, false, Unknown
	case u.source == ofNone:
		u.count, u.exact, u.outcome = 0, false, Full
	default:
		u.count, u.exact = c.hi+u.claim.taken, c.lo == c.hi
		u.outcome = outcomeOf(u.count, cost, c.ceiling)
	}
}

// distrust makes of an admitted hit that took too long one whose store failed.
func (f *flush) distrust(h *hit) {
	for _, c := range h.claims {
		if c.err == nil {
			f.fail(c, errLate)
		}
	}
	h.evaluate(f.again)
}

// refuse denies a hit that is on a deny list, without asking for anything. Only the
// limits of the rules with that list are told.
func (h *hit) refuse() {
	denying := h.uses[:0]
	for _, u := range h.uses {
		if u.listing == events.Denied && !u.check.rule.Shadow {
			u.reset = Never
			denying = append(denying, u)
		}
	}
	clear(h.uses[len(denying):])
	h.uses = denying
}

// takeBack takes back what the hits that were not admitted had added, as far as it
// was acknowledged.
func (f *flush) takeBack() {
	f.surplus = f.surplus[:0]
	for _, c := range f.claimsOf(adding) {
		if c.adding > c.taken {
			f.surplus = append(f.surplus, c)
		}
		// What is read from here on holds what stays.
		for i := range c.adds {
			if value, known := c.known.Get(c.adds[i].Item); known {
				c.known.Put(c.adds[i].Item, value+c.taken)
			}
		}
	}
	if len(f.surplus) > 0 {
		f.rollBack()
	}
}

// rollBack subtracts what the surplus claims have added in vain.
func (f *flush) rollBack() {
	// In its own time, whatever became of the caller's.
	ctx := &tripContext{caller: f.ctx.caller, deadline: time.Now().Add(f.l.timeout)}
	defer ctx.over()
	f.ops, f.sent = f.ops[:0], f.sent[:0]
	for _, c := range f.surplus {
		// The claim has one op for what follows. The local store, which comes last in the places,
		// is done with it before the shared one gets it.
		for _, place := range slices.Backward(c.places) {
			if place.receipt.None() {
				continue
			}
			c.after.RollBack(c.id, c.adds, place.receipt, c.adding-c.taken)
			if !place.local {
				f.ops, f.sent = append(f.ops, &c.after), append(f.sent, c)
				continue
			}
			place.store.Do(ctx, &c.after)
			f.rolledBack(c)
		}
	}
	if len(f.ops) == 0 {
		return
	}
	f.l.store.Do(ctx, f.ops...)
	for _, c := range f.sent {
		f.rolledBack(c)
	}
}

func (f *flush) rolledBack(c *claim) {
	if c.after.Err != nil {
		f.l.report(c.after.Err)
		c.stuck = true
	}
}

// hint has the replicas that have missed the adds get what stays of them.
func (f *flush) hint() {
	if !f.l.replicated {
		return
	}
	f.ops = f.ops[:0]
	for _, c := range f.claimsOf(adding) {
		for _, place := range c.places {
			if c.taken > 0 && place.whole && !place.local {
				c.after.Hint(c.id, c.adds, place.receipt, c.taken)
				f.ops = append(f.ops, &c.after)
			}
		}
	}
	f.l.store.Do(f.ctx, f.ops...)
}

// touch ends the denials that are remembered of the counters that the flush has added to,
// but for those that it is about to remember: they know of it.
func (f *flush) touch() {
	if f.l.cache == nil {
		return // in tests
	}
	for _, c := range f.claims.handedOut() {
		if len(c.places) == 0 {
			continue
		}
		if touched := f.l.cache.touchesOf(c.id).Add(1); touched == c.touched+1 {
			c.touched = touched
		}
	}
}

// decision makes a decision of the hit's verdict.
func (f *flush) decision(h *hit) Decision {
	d := Decision{Allowed: h.verdict == admitted, Unavailable: h.verdict == unavailable, At: time.Unix(f.stamp, 0).UTC()}
	d.Limits = make([]LimitState, len(h.uses))
	for i := range h.uses {
		u, s := &h.uses[i], &d.Limits[i]
		limit := &u.check.limit
		*s = LimitState{
			Name: limit.Name, Feature: u.claim.name.counter.Feature, N: limit.N, Window: limit.Window,
			Count: u.count, Exact: u.exact, Reset: u.reset,
			Allowed: u.allows, Listing: u.listing, Shadow: u.rule.Shadow,
			Unknown: h.path == listed || u.source == ofNone, Failed: u.source.failed(),
		}
		if s.Failed {
			s.OnError = u.rule.OnError
		}
		if charged := d.Allowed || u.claim.name.countAll && h.path == adding; charged && !f.checkOnly && u.source != ofNone {
			s.Count += h.cost
		}
		if !s.Unknown {
			s.Remaining = max(s.N-s.Count, 0)
		}
		s.Over = s.Allowed && s.Count > s.N
		s.Incomplete = u.young(f.stamp) || !s.Unknown && f.forgotten(u)
		if !s.Shadow && (!s.Allowed || s.Reset > 0) { // it may have let in what it has no room for again
			d.RetryAfter = d.RetryAfter.longer(s.Reset)
		}
	}
	return d
}

// young reports whether the rules have not kept the counter for a whole window yet.
func (u *use) young(stamp int64) bool {
	since := u.check.limit.Since
	return since != 0 && stamp < since+int64(u.check.limit.Window/time.Second)
}

// forgotten reports whether the store may have lost what was counted in the window that
// it decided on. What was lost was stamped by clocks that may have been ahead by the
// grace, and may lie as far behind the second of the loss.
func (f *flush) forgotten(u *use) bool {
	if f.l.since == nil || u.sourceNow() == ofLocal {
		return false
	}
	c := u.claim
	if !c.heard {
		c.since, c.heard = f.l.since(c.id), true
	}
	return c.since != 0 && u.check.span.edge.First <= c.since+f.l.ahead
}
