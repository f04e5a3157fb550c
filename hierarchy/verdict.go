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
		case denied:
			h.refuse()
		case adding:
			f.evaluate(h)
			if late && h.allowed {
				f.distrust(h)
			}
			for _, c := range h.claims {
				if h.allowed || c.name.countAll {
					c.taken += h.cost
				}
			}
		}
	}
}

// evaluate decides one hit on the sums of its claims.
func (f *flush) evaluate(h *hit) {
	whole := true // the event as a whole stays within its limits
	for i := range h.uses {
		u := &h.uses[i]
		u.weigh(h.cost)
		if len(u.check.rule.Per) == 0 && !u.fits {
			whole = false
		}
	}
	h.allowed, h.refused = true, false
	blocked := false
	for i := range h.uses {
		u := &h.uses[i]
		rule := u.check.rule
		u.state.Allowed = u.listing != events.Denied &&
			(u.fits || u.listing == events.Allowed || rule.Throttle.Kind == events.Elastic && whole)
		switch {
		case u.failed() && (u.fits || !u.enforced()):
			u.state.Failed, u.state.OnError = true, rule.OnError
			u.state.Allowed = rule.OnError == events.OnErrorAllow || u.listing == events.Allowed
			h.refused = h.refused || !u.state.Allowed && !rule.Shadow
		case u.claim.err != nil:
			u.state.Failed, u.state.OnError = true, rule.OnError
			fallthrough
		default:
			blocked = blocked || !u.state.Allowed && !rule.Shadow
		}
	}
	// A denial outranks a refusal, which outranks an admission.
	h.refused = h.refused && !blocked
	h.allowed = !h.refused && !blocked
	if f.again && slices.ContainsFunc(h.claims, func(c *claim) bool { return c.err != nil }) {
		h.allowed, h.refused, h.stale = false, false, true
	}
}

// weigh sets how one limit stands to a hit of that cost.
func (u *use) weigh(cost int64) {
	c := u.check
	u.state = LimitState{
		Name: c.limit.Name, Feature: u.claim.name.counter.Feature, N: c.limit.N, Window: c.limit.Window, Shadow: c.rule.Shadow,
	}
	switch {
	case u.recalled != nil:
		u.count, u.exact, u.fits = u.recalled.count, u.recalled.exact, u.recalled.fits
	case u.failed():
		u.count, u.exact, u.fits = 0, false, cost <= c.ceiling
	default:
		u.count, u.exact = c.hi+u.claim.taken, c.lo == c.hi
		u.fits = u.count+cost <= c.ceiling
	}
}

// distrust makes of an admitted hit that took too long one whose store failed.
func (f *flush) distrust(h *hit) {
	for _, c := range h.claims {
		if c.err == nil {
			f.fail(c, errLate)
		}
	}
	f.evaluate(h)
}

// refuse denies a hit that is on a deny list, without asking for anything. Only the
// limits of the rules with that list are told.
func (h *hit) refuse() {
	denying := h.uses[:0]
	for _, u := range h.uses {
		if u.listing == events.Denied && !u.check.rule.Shadow {
			u.state = LimitState{
				Name: u.check.limit.Name, Feature: u.claim.name.counter.Feature, N: u.check.limit.N, Window: u.check.limit.Window,
			}
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
		for _, bucket := range c.adds {
			if value, known := c.known.Get(bucket); known {
				c.known.Put(bucket, value+c.taken)
			}
		}
	}
	f.sideBySide(f.surplus, (*flush).takeBackOf)
}

// owe has the copies that have missed the adds get what stays of them.
func (f *flush) owe() {
	if f.l.copier == nil {
		return
	}
	for _, c := range f.claimsOf(adding) {
		for _, place := range c.places {
			if c.taken > 0 && place.whole && place.store == f.l.store {
				f.l.copier.Owe(c.id, c.taken, c.adds, c.expire, place.landed)
			}
		}
	}
}

func (f *flush) takeBackOf(c *claim) {
	for _, place := range c.places {
		if place.landed == 0 {
			continue
		}
		// In its own time, whatever became of the caller's.
		ctx := &tripContext{caller: f.ctx.caller, deadline: time.Now().Add(f.l.timeout)}
		if err := place.store.TakeBack(ctx, c.id, c.adding-c.taken, c.adds, place.landed); err != nil {
			f.l.report(err)
			c.stuck = true
		}
		ctx.over()
	}
}

// remember keeps the denials for those who come next.
func (f *flush) remember() {
	for _, h := range f.hits.handedOut() {
		if h.path != looking && h.path != adding || h.allowed || h.refused || h.unsettled || h.stale {
			continue
		}
		for _, c := range h.claims {
			if !c.name.countAll && c.err == nil {
				f.rememberClaim(h, c)
			}
		}
	}
}

// rememberClaim keeps how the limits of one of the hit's counters stood, if they
// denied it.
func (f *flush) rememberClaim(h *hit, c *claim) {
	if slices.ContainsFunc(h.uses, func(u use) bool { return u.claim == c && u.recalled != nil }) {
		return // it is in the list
	}
	found := &denial{key: keyOf(c, h.cost), before: c.before, until: c.began.Add(denialLife), limits: make([]stood, len(c.checks))}
	denies := false
	for i := range h.uses {
		u := &h.uses[i]
		if u.claim != c {
			continue
		}
		s := stood{fits: u.fits, count: u.count, exact: u.exact}
		switch {
		case u.fits || u.reset == Never:
		case u.state.Allowed: // let through, so nobody searched
			s.from = f.stamp + int64(u.check.limit.Window/time.Second)
		default:
			s.from = f.stamp + int64(u.reset)
		}
		found.limits[slices.Index(c.checks, u.check)] = s
		if !u.state.Allowed && u.enforced() {
			denies = true
			// On the monotonic clock: the wall's may be set back meanwhile.
			if from := c.began.Add(time.Unix(s.from, 0).Sub(c.began.Round(0))); s.from != 0 && from.Before(found.until) {
				found.until = from
			}
		}
	}
	if h.doubtful {
		found.until = f.began // it makes those who come next look, no more
	}
	if denies {
		f.l.denials.remember(c.id, found, f.began)
	}
}

// decision makes a decision of the hit's verdict.
func (f *flush) decision(h *hit) Decision {
	d := Decision{Allowed: h.allowed, Unavailable: h.refused, At: time.Unix(f.stamp, 0).UTC()}
	d.Limits = make([]LimitState, len(h.uses))
	for i := range h.uses {
		u, s := &h.uses[i], &d.Limits[i]
		*s = u.state
		s.Count, s.Exact, s.Reset = u.count, u.exact, u.reset
		if charged := h.allowed || u.claim.name.countAll && h.path == adding; charged && !f.checkOnly && !u.failed() {
			s.Count += h.cost
		}
		s.Listing = u.listing
		s.Unknown = h.path == denied || u.failed()
		if !s.Unknown {
			s.Remaining = max(s.N-s.Count, 0)
		}
		s.Over = s.Allowed && s.Count > s.N
		s.Incomplete = u.young(f.stamp) || !s.Unknown && f.forgotten(u)
		if !s.Allowed && !s.Shadow {
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
	if f.l.memory == nil || u.claim.local && u.check.rule.OnError == events.OnErrorLocal {
		return false
	}
	c := u.claim
	if !c.heard {
		c.since, c.heard = f.l.memory.Since(c.id), true
	}
	return c.since != 0 && u.check.span.edge.First <= c.since+f.l.ahead
}
