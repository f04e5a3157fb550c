package limiter

import (
	"fmt"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// Call is the call that asked for a decision.
type Call int

const (
	CallHit   Call = iota + 1 // Hit or Hits
	CallCheck                 // Check
)

// String returns hit or check.
func (c Call) String() string {
	switch c {
	case CallHit:
		return "hit"
	case CallCheck:
		return "check"
	}
	return fmt.Sprintf("Call(%d)", int(c))
}

// Hit is an event to be counted and decided, with the features that do it.
type Hit struct {
	Event    *events.Event
	Features events.Features
	Cost     int64 // 0 to MaxCost; a cost of 0 adds nothing, and has room while no limit is exceeded
	// Reserved is the time for which the hit can be settled by its true cost: whole seconds, at most MaxReserved. If
	// zero, it cannot be.
	Reserved time.Duration
	// Parts are what the hit counts on instead of the counters of its features, at most MaxHits. It counts on all of
	// them, or on none if one denies it. Features and Cost have no meaning then.
	Parts []Part
}

// Part is a part of a hit with a cost of its own. The costs of parts on the same counter add up, except of parts that
// look.
type Part struct {
	events.Applied
	Cost  int64 // 1 to MaxPartCost; 0 after a part on the same counter, whose cost is that of both
	Looks bool  // adds nothing, but needs room for its cost, or for the cost that other parts add if that is higher
}

// Result is the outcome of a hit or a check: a decision, or an error.
type Result struct {
	Decision events.Decision // without a Reservation: package service makes it of Reserved
	// Reserved is what an admitted hit that reserves, takes leases, or waits, added to each counter that keeps it to be
	// settled.
	Reserved []engine.Reserved
	// Parts has the part of the hit for each of the decision's limits. It is nil if the hit has no parts.
	Parts []int
	Err   error
}

// newState returns the state of a limit before anything is known of its counter.
func newState(a *events.Applied, limit *events.Limit, second int64) events.LimitState {
	return events.LimitState{
		Name: limit.Name, Series: limit.Series, Feature: a.Counter.Feature, Limit: limit.N, Window: limit.WindowAt(second),
		WindowName: limit.Unit(), Burst: limit.Burst, Algorithm: limit.Algorithm,
		Listing: a.Listing, Overridden: a.Overrides(*limit), Shadow: a.Rule.Shadow,
	}
}

// conclude sets the result of the hit's request.
func (b *batch) conclude(h *hit) {
	d := events.Decision{
		Allowed: h.verdict == admitted, Unavailable: h.verdict == unavailable, At: time.Unix(b.at.Second, 0).UTC(),
		Limits: make([]events.LimitState, len(h.answers)),
	}
	result := &h.request.result
	result.Reserved, result.Parts = nil, nil
	if d.Allowed && b.adds {
		b.reserve(h)
	}
	if d.Allowed {
		d.Wait = h.wait()
	}
	for i := range h.answers {
		d.Limits[i] = b.state(h, &h.answers[i])
		if h.request.hasParts {
			result.Parts = append(result.Parts, h.answers[i].part)
		}
	}
	h.setRetryAfter(&d)
	result.Decision = d
}

// state returns the state of a limit after the hit.
func (b *batch) state(h *hit, a *answer) events.LimitState {
	t, limit := a.tally, a.limit
	s := newState(a.Applied, &limit.Limit, b.at.Second)
	s.Allowed, s.Unreserved, s.Reset, s.Unknown = a.allowed, a.unreserved, b.reset(a), !a.known
	if t.failed && a.denial == nil {
		s.Failed, s.OnError = true, a.Rule.OnError
	}
	if a.known {
		share := &h.shares[a.share]
		s.Exact, s.Count = limit.Exact, a.count
		if b.adds && (h.verdict == admitted || t.countAll) {
			s.Count += share.adds
		}
		if h.verdict == denied && !b.adds && t.Taken > 0 {
			s.Exact = false // hits that the check lets through may still fail
		}
		s.Remaining = max(s.Most()-s.Count, 0)
		s.Incomplete = limit.isYoung() || b.limiter.mayLack(a)
	}
	s.Over = s.Allowed && s.Count > s.Most()
	return s
}

// setRetryAfter sets when the hit has room by all limits.
func (h *hit) setRetryAfter(d *events.Decision) {
	var eventReset, soonest time.Duration // soonest is the wait if all reservations and leases are given back
	for i := range h.answers {
		if a := &h.answers[i]; len(a.Rule.Per) == 0 && !a.allowed {
			eventReset = max(eventReset, d.Limits[i].Reset)
		}
	}
	for i := range h.answers {
		a, s := &h.answers[i], &d.Limits[i]
		if a.Rule.Throttle.Kind == events.Elastic && !a.allowed && a.known && a.Listing != events.Denied {
			s.Reset = min(s.Reset, eventReset) // it admits as soon as the event as a whole has room
		}
		if s.Shadow || s.Allowed && s.Reset == 0 {
			continue
		}
		d.RetryAfter = max(d.RetryAfter, s.Reset)
		if a.mayFit() {
			soonest = max(soonest, min(s.Reset, time.Second))
		} else {
			soonest = max(soonest, s.Reset)
		}
	}
	if seconds := engine.CeilSeconds(soonest); seconds < engine.CeilSeconds(d.RetryAfter) {
		d.MayFitAfter = time.Duration(seconds) * time.Second
	}
}

// reserve adds what the admitted hit reserved on its counters to its result, and marks limits whose counter has nothing
// to settle.
func (b *batch) reserve(h *hit) {
	wait := h.wait()
	for i := range h.shares {
		share := &h.shares[i]
		t := share.tally
		if share.add < 0 {
			continue
		}
		r := t.Adds[share.add].Reserved
		if r.Ends == 0 && wait > 0 {
			r.Turn, r.Ends = true, max(b.at.Time.UnixMilli(), b.at.Second*1000)+wait.Milliseconds()
		}
		if r.ID == 0 || r.Ends == 0 || t.failed {
			for j := range h.answers {
				if a := &h.answers[j]; a.share == i {
					a.unreserved = h.request.ends != 0 || a.Rule.Leases()
				}
			}
			continue
		}
		if b.limiter.alias != nil {
			r.Counter = b.limiter.alias(r.Counter)
		}
		r.Engine, r.Retention, r.Precision = t.Engine, t.Counter.Remembered(), t.Counter.Precision
		h.request.result.Reserved = append(h.request.result.Reserved, r)
	}
}

// isYoung reports whether the counter has not been kept for a whole window.
func (l *Limit) isYoung() bool {
	since := max(l.Limit.Since, l.Since)
	return since != 0 && l.First <= since
}

// mayLack reports whether the store may have lost a part of the window. Lost events were stamped by clocks that may be
// ahead by the grace.
func (l *Limiter) mayLack(a *answer) bool {
	t := a.tally
	if l.since == nil || t.failed && a.denial == nil {
		return false
	}
	if !t.lossKnown {
		t.loss, t.lossKnown = l.since(t.ID), true
	}
	return t.loss != 0 && a.limit.First <= t.loss+engine.CeilSeconds(l.grace)
}
