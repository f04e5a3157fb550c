package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// errNoEngine is the error of a hit with rules whose algorithm no engine keeps.
var errNoEngine = fmt.Errorf("%w: no engine keeps the algorithm of a limit", events.ErrInvalid)

// A request is a hit on its way from its caller to a batch and back.
type request struct {
	waiter
	ctx        context.Context
	deadline   time.Time // for the store, by the real clock
	ends       int64     // of the reservation, in Unix milliseconds, or 0
	hasParts   bool
	applied    []events.Applied
	uses       []use // of the applied rules
	overloaded bool  // the shared store must not be used
	counted    bool  // in the Stats
	rejected   bool  // an add rejected the hit; result is that denial
	hadRoom    bool  // a check found room
	result     Result
}

// A use is how one applied rule counts a hit.
type use struct {
	limits []events.Limit
	engine int   // place of the engine that keeps the counter
	asks   int64 // the cost that needs room
	adds   int64 // the cost that is added
}

// newRequest finds the rules and counters of the hit. If the hit is invalid, result.Err is set.
func (l *Limiter) newRequest(ctx context.Context, h Hit) *request {
	r, _ := l.requests.Get().(*request)
	if r == nil {
		r = new(request)
	}
	now := l.clock.now()
	r.ctx, r.deadline = ctx, l.clock.realTime(now).Add(l.timeout)
	if h.Reserved != 0 {
		r.ends = now.Add(h.Reserved).UnixMilli()
	}
	if len(h.Parts) > 0 {
		r.deadline = r.deadline.Add(l.timeout * time.Duration(len(h.Parts)/tripsAtOnce))
		r.result.Err = r.setParts(h.Parts)
	} else {
		r.result.Err = r.setFeatures(h)
	}
	if h.Reserved != 0 {
		r.result.Err = errors.Join(r.result.Err, CheckReserved(h.Reserved))
	}
	if r.result.Err == nil {
		r.result.Err = r.findEngines(l.engines)
	}
	return r
}

// setFeatures sets the counters of the hit's features, which all have the same cost.
func (r *request) setFeatures(h Hit) (err error) {
	r.applied, err = h.Event.Apply(r.applied, h.Features)
	check := CheckCost
	if h.Reserved != 0 {
		check = checkPositive
	}
	for range r.applied {
		r.uses = append(r.uses, use{asks: h.Cost, adds: h.Cost})
	}
	return errors.Join(err, check(h.Cost))
}

// setParts sets the counters of the hit's parts, each with a cost of its own.
func (r *request) setParts(parts []Part) error {
	r.hasParts = true
	if len(parts) > MaxHits {
		return engine.OutOfRange(engine.ArgHits, "%d parts, a hit has at most %d", len(parts), MaxHits)
	}
	for i := range parts {
		p := &parts[i]
		u := use{asks: p.Cost, adds: p.Cost}
		if p.Looks {
			u.adds = 0
		}
		r.applied, r.uses = append(r.applied, p.Applied), append(r.uses, u)
		if p.Cost == 0 && slices.ContainsFunc(parts[:i], func(before Part) bool { return before.ID == p.ID }) {
			continue
		}
		if p.Cost < 1 || p.Cost > MaxPartCost {
			return engine.OutOfRange(engine.ArgCost, "the cost of a part must be between 1 and %d", MaxPartCost)
		}
	}
	return nil
}

// findEngines sets the limits of each use, and the engine that keeps their counter.
func (r *request) findEngines(engines mux) error {
	for i := range r.applied {
		a, u := &r.applied[i], &r.uses[i]
		u.limits = a.Rule.LimitsOf(a.Counter.Feature)
		place, ok := engines.find(u.limits)
		if !ok {
			return errNoEngine
		}
		u.engine = place
		if a.Rule.Leases() { // a hit takes one lease, whatever its cost
			u.asks = 1
			if !r.hasParts || u.adds > 1 {
				u.adds = 1
			}
		}
	}
	return nil
}

func (l *Limiter) freeRequest(r *request) {
	clear(r.applied)
	clear(r.uses)
	*r = request{waiter: r.waiter, applied: r.applied[:0], uses: r.uses[:0]}
	l.requests.Put(r)
}

// isHurried reports whether the hit's context ends before its deadline, which then ends with the context.
func (r *request) isHurried() bool {
	deadline, ok := r.ctx.Deadline()
	if !ok || !deadline.Before(r.deadline) {
		return false
	}
	r.deadline = deadline
	return true
}

// isListed reports whether the rule denies the hit by its list.
func isListed(a events.Applied) bool { return a.Listing == events.Denied && !a.Rule.Shadow }

func countsAll(a events.Applied) bool { return a.Rule.Count == events.CountAll }

// refuse denies the hit if it is on a deny list, and reports whether it is. The decision has the limits of the rules
// with that list. Nothing is counted.
func (l *Limiter) refuse(r *request) bool {
	if !slices.ContainsFunc(r.applied, isListed) {
		return false
	}
	second := l.clock.moment().Second
	d := events.Decision{At: time.Unix(second, 0).UTC(), RetryAfter: events.Never}
	for i := range r.applied {
		a := &r.applied[i]
		if !isListed(*a) {
			continue
		}
		for j := range r.uses[i].limits {
			s := newState(a, &r.uses[i].limits[j], second)
			s.Unknown, s.Reset = true, events.Never
			d.Limits = append(d.Limits, s)
			if r.hasParts {
				r.result.Parts = append(r.result.Parts, i)
			}
		}
	}
	r.result.Decision = d
	return true
}

// recall denies the hit if all of its counters have cached denials, and reports whether it did.
func (l *Limiter) recall(r *request) bool {
	if !l.denials.mayAnswer(r, l.clock.now) {
		return false
	}
	r.open = append(r.open[:0], r)
	b := l.newBatch(r.open, false)
	b.recall()
	if len(b.unknown) == 0 {
		b.decide(false)
	}
	if len(b.unknown) > 0 || b.hits[0].verdict != denied {
		b.free()
		return false
	}
	b.finish(r.open[:0])
	return true
}

// mustCheck reports whether the hit is checked before it adds: because it costs more than a limit admits, or because a
// counter has denied a hit and no check has found room since. A flood of hits that add and are undone would otherwise
// keep all hits out.
func (l *Limiter) mustCheck(r *request) bool {
	if slices.ContainsFunc(r.applied, countsAll) {
		return false // it is counted in any case
	}
	for i := range r.applied {
		a, u := &r.applied[i], &r.uses[i]
		if !isEnforced(a) || len(u.limits) == 0 {
			continue
		}
		if l.denials.denies(denialKey{a.ID, u.engine}, u) {
			return true
		}
		for j := range u.limits {
			if needed(u.asks, ceiling(a, &u.limits[j])) > ceiling(a, &u.limits[j]) {
				return true
			}
		}
	}
	return false
}

// pause separates processes that contend for the same room. There is none before the first check.
func (l *Limiter) pause(ctx context.Context, try int) {
	if try == 1 {
		return
	}
	timer := time.NewTimer(l.config.Random(time.Millisecond << try))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// dropLate ends the rejected requests that have no time for a check, and returns the others.
func (l *Limiter) dropLate(requests []*request) []*request {
	now := time.Now()
	kept := requests[:0]
	for _, r := range requests {
		if r.rejected && r.isLate(now) {
			l.giveUp(r)
		} else {
			kept = append(kept, r)
		}
	}
	return kept
}

// isLate reports whether the caller has left, or the time for the store is over.
func (r *request) isLate(now time.Time) bool { return r.ctx.Err() != nil || !now.Before(r.deadline) }

// giveUp denies a rejected request as its last add did.
func (l *Limiter) giveUp(r *request) {
	r.repeatDenial()
	l.done(r, 1)
}

// repeatDenial lets the denial of the last add stand. If a check has found room before, the room may be there soon.
func (r *request) repeatDenial() {
	if !r.hadRoom {
		return
	}
	d := &r.result.Decision
	for i := range d.Limits {
		if s := &d.Limits[i]; !s.Allowed && s.Reset != events.Never {
			s.Reset = time.Second
		}
	}
	d.RetryAfter = time.Second
}

// done ends the wait of the request's caller. hits is the number of hits that were decided together.
func (l *Limiter) done(r *request, hits int) {
	if hits > 1 && l.config.OnCoalesced != nil && r.isCoalesced() {
		l.config.OnCoalesced(r.ctx, r.leaderContext(), hits)
	}
	r.done()
}

// report calls OnDecision.
func (l *Limiter) report(r *request, h Hit, call Call) {
	if l.config.OnDecision != nil && r.result.Err == nil {
		l.config.OnDecision(r.ctx, h, &r.result.Decision, call)
	}
}

// CheckCost returns a *RangeError if a hit must not have the cost.
func CheckCost(cost int64) error {
	if cost < 0 || cost > MaxCost {
		return engine.OutOfRange(engine.ArgCost, "it is 0 to %d", MaxCost)
	}
	return nil
}

// checkPositive returns a *RangeError if a hit that reserves must not have the cost.
func checkPositive(cost int64) error {
	if cost < 1 || cost > MaxCost {
		return engine.OutOfRange(engine.ArgCost, "it is 1 to %d", MaxCost)
	}
	return nil
}

// CheckReserved returns a *RangeError if a hit must not reserve for the duration.
func CheckReserved(d time.Duration) error {
	if d < time.Second || d > MaxReserved || d%time.Second != 0 {
		return engine.OutOfRange(engine.ArgReserve, "it is 1s to 24h, in whole seconds")
	}
	return nil
}
