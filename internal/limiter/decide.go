package limiter

import (
	"errors"
	"slices"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// errLate is why a hit is not admitted that took longer than the grace allows.
var errLate = errors.New("limiter: the decision took longer than half the grace")

// decide folds the verdicts: the hits that were added, in their order. A denied
// one is skipped by those after it.
func (f *batch) decide() {
	late := !f.moment.Check && isLate(f.moment, f.l.now(), f.l.grace)
	for _, h := range f.hits.handedOut() {
		switch h.path {
		case listed:
			h.denyListed()
		case adding:
			h.weigh(f.again())
			if late && h.verdict == admitted {
				f.failLate(h)
			}
			for _, c := range h.counters {
				adds := h.addsTo(c)
				if adds == 0 {
					continue
				}
				if h.verdict == admitted || c.name.countAll {
					c.taken += adds
					c.hits[c.decided].Stays = true
				}
				if h.verdict == admitted {
					h.note(c, f.l.alias)
				}
				c.decided++
			}
		}
	}
	if hits := f.hits.handedOut(); len(hits) > 1 {
		for _, h := range hits {
			h.putBehind()
		}
	}
}

// putBehind decides a denied hit again, behind all hits that were admitted with it: its counts
// are then true when it is answered, and its cached denial stays true. To come last denies it
// all the more. A counter that fails says what it said.
func (h *hit) putBehind() {
	if !h.isDenied() || !h.isAhead() {
		return
	}
	before := slices.Clone(h.limits)
	h.charge(-1)
	for i := range h.limits {
		if u := &h.limits[i]; u.counter.err == nil {
			if u.counter.taken > 0 {
				u.cached = nil
			}
			u.weigh(h.costOn(u.counter))
		}
	}
	h.verdict = fold(h.limits)
	h.charge(1)
	if !h.isDenied() { // by what the store has said since it looked; it has not added
		copy(h.limits, before)
		h.verdict = denied
	}
}

// isAhead reports whether the hit does not know of all that was admitted with it.
func (h *hit) isAhead() bool {
	for i := range h.limits {
		u := &h.limits[i]
		taken := u.counter.taken
		if u.counter.name.countAll && h.path == adding {
			taken -= h.addsTo(u.counter)
		}
		if u.counter.err == nil && taken > 0 && (u.cached != nil || u.count != u.standing(taken, h.costOn(u.counter)).Count) {
			return true
		}
	}
	return false
}

// charge adds what a denied hit leaves on counters of all hits, so many times.
func (h *hit) charge(times int64) {
	for _, c := range h.counters {
		if c.name.countAll && h.path == adding {
			c.taken += times * h.addsTo(c)
		}
	}
}

// isWeighed reports whether the hit's limits decide it.
func (h *hit) isWeighed() bool { return h.path == looking || h.path == adding }

// isDenied reports whether limits deny the hit.
func (h *hit) isDenied() bool {
	return h.isWeighed() && (h.verdict == denied || h.verdict == contended)
}

// weigh decides one hit on the sums of its counters.
func (h *hit) weigh(again bool) {
	for i := range h.limits {
		h.limits[i].weigh(h.costOn(h.limits[i].counter))
	}
	h.verdict = fold(h.limits)
	if again && slices.ContainsFunc(h.counters, func(c *counterState) bool { return c.err != nil }) {
		h.verdict = asBefore
	}
}

// weigh finds the outcome of one limit for a hit of that cost.
func (u *limitEval) weigh(cost int64) {
	c := u.window
	u.source, u.ahead, u.final, u.wait = u.sourceNow(), 0, false, 0
	switch {
	case u.source == ofDenial:
		u.count, u.exact, u.outcome = u.cached.count, u.cached.isExact(), u.cached.outcome
	case u.source == ofNone && cost <= c.ceiling:
		u.count, u.exact, u.outcome = 0, false, engine.Unknown
	case u.source == ofNone:
		u.count, u.exact, u.outcome = 0, false, engine.Full
	default:
		u.ahead = u.counter.taken
		s := u.standing(u.ahead, cost)
		u.count, u.exact, u.outcome, u.final, u.wait = s.Count, s.Exact, s.Outcome, s.Final, s.Wait
		if cost == 0 {
			u.wait = 0 // it takes no turn
		}
	}
}

// standing returns whether the limit has room for a hit behind others of its batch.
func (u *limitEval) standing(ahead, cost int64) engine.Standing {
	return u.counter.open().Standing(u.window.index, u.counter.decided, ahead, cost)
}

// failLate makes of an admitted hit that took too long one whose store failed.
func (f *batch) failLate(h *hit) {
	for _, c := range h.counters {
		if c.err == nil {
			f.fail(c, errLate)
		}
	}
	h.weigh(f.again())
}

// denyListed denies a hit that is on a deny list, without a round trip. Its decision names the
// limits of the rules with that list only.
func (h *hit) denyListed() {
	denying := h.limits[:0]
	for _, u := range h.limits {
		if u.listing == events.Denied && !u.window.rule.Shadow {
			u.reset = events.Never
			denying = append(denying, u)
		}
	}
	clear(h.limits[len(denying):])
	h.limits = denying
}

// conclude makes the decision of the hit's verdict, and sets it in the hit's request.
func (f *batch) conclude(h *hit) {
	d := events.Decision{Allowed: h.verdict == admitted, Unavailable: h.verdict == unavailable, At: time.Unix(f.moment.Stamp, 0).UTC()}
	if d.Allowed {
		d.Wait = waitOf(h.limits)
	}
	d.Limits = make([]events.LimitState, len(h.limits))
	soonest := time.Duration(0) // if all reservations and leases are given back
	var parts []int
	if len(h.request.costs) > 0 {
		parts = make([]int, len(h.limits))
	}
	for i := range h.limits {
		u, s := &h.limits[i], &d.Limits[i]
		limit := &u.window.limit
		if parts != nil {
			parts[i] = u.part
		}
		*s = events.LimitState{
			Name: limit.Name, Series: limit.Series, Feature: u.counter.name.counter.Feature, Limit: limit.N, Window: limit.WindowAt(f.moment.Stamp), WindowName: limit.Unit(), Burst: limit.Burst, Algorithm: limit.Algorithm,
			Count: u.count, Exact: u.exact, Reset: u.reset,
			Allowed: u.allows, Listing: u.listing, Overridden: u.overridden, Shadow: u.rule.Shadow,
			Unknown: h.path == listed || u.source == ofNone, Failed: u.source.failed(), Unreserved: u.unreserved,
		}
		if s.Failed {
			s.OnError = u.rule.OnError
		}
		if charged := d.Allowed || u.counter.name.countAll && h.path == adding; charged && !f.moment.Check && u.source != ofNone {
			s.Count += h.addsTo(u.counter)
		}
		if !s.Unknown {
			s.Remaining = max(s.Most()-s.Count, 0)
		}
		s.Over = s.Allowed && s.Count > s.Most()
		s.Incomplete = u.isYoung() || !s.Unknown && u.isLost(f.l.since, engine.CeilSeconds(f.l.grace))
		if !s.Shadow && (!s.Allowed || s.Reset > 0) { // it may have let in what it has no room for again
			d.RetryAfter = max(d.RetryAfter, s.Reset)
			if u.mayFit {
				soonest = max(soonest, min(s.Reset, time.Second))
			} else {
				soonest = max(soonest, s.Reset)
			}
		}
	}
	if seconds := engine.CeilSeconds(soonest); seconds < engine.CeilSeconds(d.RetryAfter) {
		d.MayFitAfter = time.Duration(seconds) * time.Second
	}
	h.request.result.Decision, h.request.result.Parts = d, parts
}

// waitOf returns how long an admitted hit waits for its turn by its limits.
func waitOf(limits []limitEval) (longest time.Duration) {
	for i := range limits {
		if u := &limits[i]; u.enforced() {
			longest = max(longest, u.wait)
		}
	}
	return longest
}

// isYoung reports whether the counter has not been kept for a whole window yet, by the rules or by
// what its engine knows.
func (u *limitEval) isYoung() bool {
	if u.cached != nil {
		return u.cached.young // it needs no session
	}
	span := u.counter.open().Span(u.window.index)
	since := max(u.window.limit.Since, span.Since)
	return since != 0 && span.First <= since
}

// isLost reports whether the store may have lost what was counted in the window that
// it decided on. What was lost was stamped by clocks that may have been ahead by the
// grace, and may lie as far behind the second of the loss.
func (u *limitEval) isLost(since func(counter string) int64, ahead int64) bool {
	if since == nil || u.sourceNow() == ofLocal {
		return false
	}
	c := u.counter
	if !c.sinceKnown {
		c.since, c.sinceKnown = since(c.id), true
	}
	return c.since != 0 && c.open().Span(u.window.index).First <= c.since+ahead
}

// source is where the count of a limit comes from.
type source uint8

const (
	ofStore  source = iota // the shared store
	ofDenial               // a cached denial
	ofLocal                // this process's own counters: the shared store failed
	ofNone                 // the shared store failed, and no other may stand in
)

// failed reports whether the shared store did not answer.
func (s source) failed() bool { return s == ofLocal || s == ofNone }

// verdict is how a hit is decided.
type verdict uint8

const (
	undecided   verdict = iota
	admitted            // it counts
	denied              // a limit denies it
	contended           // a limit denies it for now: it may retry, and its denial is not cached
	unavailable         // a rule refuses it because no store answered
	asBefore            // the store failed in a retry: the decision of the try before holds
)

// ruling is how one limit rules on a hit: what the fold over all of them takes and gives.
type ruling struct {
	rule    *events.Rule
	listing events.Listing
	// overridden: a temporary override has set the listing, or the limit's rate.
	overridden bool
	outcome    engine.Outcome
	final      bool // no transient adds explain it
	source     source

	allows  bool // by itself
	ignored bool // the store failed, and OnError decides
}

// enforced reports whether the limit can deny the hit by itself.
func (r *ruling) enforced() bool {
	kind := r.rule.Throttle.Kind
	return !r.rule.Shadow && r.listing != events.Allowed && kind != events.Elastic && kind != events.Quota
}

// denies reports whether the limit denies the hit by itself.
func (r *ruling) denies() bool { return !r.allows && r.enforced() }

// isOfAll reports whether the limit is on the event as a whole.
func (r *ruling) isOfAll() bool { return len(r.rule.Per) == 0 }

// fits reports whether no count is known that leaves no room.
func (r *ruling) fits() bool { return r.outcome == engine.Fits || r.outcome == engine.Unknown }

// rules sets what the limit says by itself. An elastic limit allows while the event as a whole
// has room, a quota while another quota has.
func (r *ruling) rules(wholeFits, quotaFits bool) {
	if r.ignored = r.source == ofNone && (r.outcome == engine.Unknown || !r.enforced()); r.ignored {
		r.allows = r.rule.OnError == events.OnErrorAllow || r.listing == events.Allowed
		return
	}
	r.allows = r.listing != events.Denied &&
		(r.fits() || r.listing == events.Allowed || r.rule.Throttle.Kind == events.Elastic && wholeFits || r.rule.Throttle.Kind == events.Quota && quotaFits)
}

// fold has all limits of a hit rule on it, and returns its verdict. A denial outranks a
// refusal without a store, which outranks an admission. Shadow limits only report.
func fold(limits []limitEval) verdict {
	wholeFits, quotaFits := true, false
	for i := range limits {
		wholeFits = wholeFits && (limits[i].fits() || !limits[i].isOfAll())
		quotaFits = quotaFits || limits[i].fits() && limits[i].rule.Throttle.Kind == events.Quota
	}
	refused, blocked := false, false
	for i := range limits {
		r := &limits[i].ruling
		r.rules(wholeFits, quotaFits)
		refused = refused || r.ignored && !r.allows && !r.rule.Shadow
		blocked = blocked || !r.ignored && !r.allows && !r.rule.Shadow
	}
	switch {
	case blocked:
		return denied
	case refused:
		return unavailable
	}
	return admitted
}
