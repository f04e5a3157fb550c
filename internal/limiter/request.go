package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/coalesce"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// request is a hit on its way from its caller to where it is decided, and back.
type request struct {
	coalesce.Waiter[*request] // in the queues of its counters, by their IDs

	ctx      context.Context
	cost     int64
	costs    []partCost // of the applied rules, each on its counter; none: all of them cost the same
	reserved time.Duration
	applied  []events.Applied
	err      error // a fault of the hit

	began time.Time // when it came
	until time.Time // when its wait for the store is over
	// What it found when it last looked.
	overshoot overshoot

	result Result
}

// newRequest finds the hit's rules and counters.
func (l *Limiter) newRequest(ctx context.Context, h Hit) *request {
	r, _ := l.requests.Get().(*request)
	if r == nil {
		r = new(request)
	}
	r.ctx, r.cost, r.reserved, r.began = ctx, h.Cost, h.Reserved, l.now()
	// Timeouts are real, whatever clock the stamps are of.
	if l.real {
		r.until = r.began.Add(l.timeout)
	} else {
		r.until = time.Now().Add(l.timeout)
	}
	if len(h.Parts) > 0 {
		r.until = r.until.Add(l.timeout * time.Duration(len(h.Parts)/tripsAtOnce))
		r.err = r.take(h.Parts)
	} else {
		r.applied, r.err = h.Event.Apply(r.applied, h.Features)
		check := CheckCost
		if h.Reserved != 0 {
			check = checkPositive
		}
		r.err = errors.Join(r.err, check(h.Cost))
	}
	for i := range r.applied {
		r.Keys = append(r.Keys, r.applied[i].ID)
	}
	if h.Reserved != 0 {
		r.err = errors.Join(r.err, CheckReserved(h.Reserved))
	}
	return r
}

// take has the request be of those parts.
func (r *request) take(parts []Part) error {
	if len(parts) > MaxHits {
		return engine.OutOfRange(engine.ArgHits, "%d parts, a hit has at most %d", len(parts), MaxHits)
	}
	for i := range parts {
		r.applied, r.costs = append(r.applied, parts[i].Applied), append(r.costs, parts[i].cost())
		if parts[i].Cost == 0 && slices.ContainsFunc(parts[:i], func(p Part) bool { return p.ID == parts[i].ID }) {
			continue
		}
		if cost := parts[i].Cost; cost < 1 || cost > MaxPartCost {
			return engine.OutOfRange(engine.ArgCost, "the cost of a part must be between 1 and %d", MaxPartCost)
		}
	}
	return nil
}

func (l *Limiter) freeRequest(r *request) {
	clear(r.applied)
	clear(r.Keys)
	*r = request{Waiter: r.Waiter, applied: r.applied[:0], costs: r.costs[:0]}
	r.Keys = r.Keys[:0]
	l.requests.Put(r)
}

// onDenyList reports whether a rule denies the hit without asking.
func (r *request) onDenyList() bool {
	return slices.ContainsFunc(r.applied, func(a events.Applied) bool { return a.Listing == events.Denied && !a.Rule.Shadow })
}

// hurried reports whether the hit's context ends before its wait for the store would,
// and has the wait end with it.
func (r *request) hurried() bool {
	deadline, bounded := r.ctx.Deadline()
	if !bounded || !deadline.Before(r.until) {
		return false
	}
	r.until = deadline
	return true
}

// decide has the hit decided, by its caller or by others.
func (l *Limiter) decide(r *request) {
	if r.err != nil || l.decidedAtOnce(r) {
		return
	}
	if !l.pending.Enter(1) {
		l.overload(l.coalescer.NewGroup(r))
		return
	}
	defer l.pending.Leave(1)
	now := r.began
	var g *coalesce.Group[*request]
	if r.hurried() {
		g = l.coalescer.NewGroup(r)
	} else if g = l.coalescer.Enter(r); g == nil {
		if g = r.Turn(); g == nil {
			return
		}
		now = l.now()
	}
	l.lead(g, r, now)
}

// decidedAtOnce decides the hit if that takes no round trip: where it is on a deny list, or a
// denial is cached.
func (l *Limiter) decidedAtOnce(r *request) bool {
	if !r.onDenyList() && !l.denials.mayDeny(r) {
		return false
	}
	f := l.newBatch(engine.Moment{Now: r.began}, r)
	f.recall()
	h := f.hits.all[0]
	if h.needsNoStore() {
		f.look()
	}
	if !h.needsNoStore() || h.path == adding { // it has turned out to fit
		f.free()
		return false
	}
	f.settle(0)
	return l.handOn(f, l.coalescer.NewGroup(r), r)
}

// overload decides the hits of the group without the shared store. What is remembered
// still counts.
func (l *Limiter) overload(g *coalesce.Group[*request]) {
	f := l.newBatch(engine.Moment{Now: g.Requests[0].began}, g.Requests...)
	f.overloaded = true
	f.recall()
	f.look()
	f.settle(maxTries)
	l.handOn(f, g, nil)
}

// lead decides the hits of the group, again and again where they try again. It ends when
// own is decided, the caller's, or with all of them where that is nil.
func (l *Limiter) lead(g *coalesce.Group[*request], own *request, now time.Time) {
	handedOn := false
	defer func() {
		if !handedOn {
			l.abandon(g) // the store, or a hook, has panicked
		}
	}()
	for !handedOn {
		var first time.Time
		if g.Try > 0 {
			l.retryPolicy().pause(g.Requests[0].ctx, g.Try-1)
			first, now = g.Began, l.now()
		} else {
			g.Began = now
		}
		f := l.newBatch(engine.Moment{Now: now, First: first}, g.Requests...)
		f.recall()
		f.look()
		f.settle(g.Try)
		if f.counters.hasFailed() {
			l.coalescer.StayApart()
		}
		handedOn = l.handOn(f, g, own)
	}
}

// handOn gives the hits of the group what the batch has decided, and frees the batch.
// Where own is decided, or all are, it hands on what is left of the group, or its lines,
// and returns true; else the hits that are left retry.
func (l *Limiter) handOn(f *batch, g *coalesce.Group[*request], own *request) (done bool) {
	l.tally.add(f)
	left := g.Requests[:0]
	ownLeft := own == nil
	hits := f.hits.handedOut()
	// Before any is handed on: the hook may panic, and then all are abandoned.
	if l.onCoalesced != nil && own != nil && len(hits) > 1 {
		for _, h := range hits {
			if !h.retries {
				l.onCoalesced(h.request.ctx, own.ctx, len(hits))
			}
		}
	}
	for _, h := range hits {
		r := h.request
		// Where the store has failed since, the denial of the try before holds.
		if h.path != faulty && h.verdict != asBefore {
			f.conclude(h)
		}
		switch {
		case h.retries:
			left = append(left, r)
			ownLeft = ownLeft || r == own
		default:
			r.Done()
		}
	}
	f.free()
	clear(g.Requests[len(left):])
	g.Requests = left
	g.Try++
	switch {
	case len(left) == 0:
		l.coalescer.Leave(g)
	case !ownLeft:
		l.coalescer.Pass(g)
	default:
		return false
	}
	return true
}

// errAbandoned is the error of hits whose decision another caller's panic has broken off.
var errAbandoned = fmt.Errorf("%w: the decision was broken off by a panic", engine.ErrStore)

// abandon ends the wait for the group.
func (l *Limiter) abandon(g *coalesce.Group[*request]) {
	for _, r := range g.Requests {
		r.err = errAbandoned
		r.Done()
	}
	l.coalescer.Leave(g)
}

// CheckCost returns a *RangeError for what a hit cannot cost.
func CheckCost(cost int64) error {
	if cost < 0 || cost > MaxCost {
		return engine.OutOfRange(engine.ArgCost, "it is 0 to %d", MaxCost)
	}
	return nil
}

// checkPositive returns a *RangeError for what a part, or a hit that reserves, cannot cost.
func checkPositive(cost int64) error {
	if cost < 1 || cost > MaxCost {
		return engine.OutOfRange(engine.ArgCost, "it is 1 to %d", MaxCost)
	}
	return nil
}

// CheckReserved returns a *RangeError for how long a hit that reserves cannot do so.
func CheckReserved(d time.Duration) error {
	if d < time.Second || d > MaxReserved || d%time.Second != 0 {
		return engine.OutOfRange(engine.ArgReserve, "it is 1s to 24h, in whole seconds")
	}
	return nil
}

// MayHave reports whether a hit can have reserved that, by the times: for no longer than a queue or a reservation
// lasts.
func (l *Limiter) MayHave(r *engine.Reserved) bool {
	allowed, lasts := 2*l.grace.Milliseconds(), r.Ends-r.Time
	return lasts >= -allowed && lasts <= events.MaxWindow.Milliseconds()+allowed
}

// Ahead returns by how much the reservation is stamped later than clocks allow that differ by no more than the grace,
// also behind a reset; 0: it is not. A log that a clock has carried ahead stamps hits so.
func (l *Limiter) Ahead(r *engine.Reserved) time.Duration {
	latest := max(l.now().UnixMilli(), l.stamps.latest.Load()*1000) + 2*l.grace.Milliseconds()
	return time.Duration(min(max(r.Time-latest, 0), events.MaxWindow.Milliseconds())) * time.Millisecond
}

// stamps gives hits their stamps: Unix seconds. They go back only where the clock was set back.
type stamps struct{ latest atomic.Int64 }

// next returns the second of the moment, or the latest stamp where that is later, but not by so much
// that hits of it would be late. It returns the latest stamp, too.
func (s *stamps) next(now time.Time, grace time.Duration) (stamp, latest int64) {
	second := now.Unix()
	for latest = s.latest.Load(); second > latest; latest = s.latest.Load() {
		if s.latest.CompareAndSwap(latest, second) {
			return second, second
		}
	}
	if time.Unix(latest, 0).Sub(now.Round(0)) > maxAhead(grace) {
		return second, latest
	}
	return latest, latest
}

// maxAhead is by how much a stamp may be ahead of the wall clock.
func maxAhead(grace time.Duration) time.Duration { return grace / 4 }

// isLate reports whether a hit of the moment may no longer be admitted now: on the monotonic clock
// or on the wall's more than half the grace has passed since, or the stamp is far ahead of the
// wall's.
func isLate(m engine.Moment, now time.Time, grace time.Duration) bool {
	if elapsed := now.Sub(m.Now); elapsed > grace/2 {
		return true
	}
	stamped := m.Now.Round(0)
	if second := time.Unix(m.Stamp, 0); second.After(stamped) {
		stamped = second
	}
	wall := now.Round(0).Sub(stamped)
	return wall < -maxAhead(grace) || wall > grace/2
}
