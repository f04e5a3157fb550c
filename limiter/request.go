package limiter

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/limiter/coalesce"
)

// request is a hit on its way from its caller to where it is decided, and back.
type request struct {
	coalesce.Waiter[*request] // in the queues of its counters, by their IDs

	ctx     context.Context
	cost    int64
	applied []events.Applied
	err     error // a fault of the hit

	began time.Time // when it came
	until time.Time // when its wait for the store is over
	// What it found when it last looked.
	overshoot overshoot

	decision Decision
}

// newRequest finds the hit's rules and counters.
func (l *Limiter) newRequest(ctx context.Context, h Hit) *request {
	r, _ := l.requests.Get().(*request)
	if r == nil {
		r = new(request)
	}
	r.ctx, r.cost, r.began = ctx, h.Cost, l.now()
	// Timeouts are real, whatever clock the stamps are of.
	if l.real {
		r.until = r.began.Add(l.timeout)
	} else {
		r.until = time.Now().Add(l.timeout)
	}
	r.applied, r.err = h.Event.Apply(r.applied, h.Features)
	for i := range r.applied {
		r.Keys = append(r.Keys, r.applied[i].ID)
	}
	r.err = errors.Join(r.err, CheckCost(h.Cost))
	return r
}

func (l *Limiter) freeRequest(r *request) {
	clear(r.applied)
	clear(r.Keys)
	*r = request{Waiter: r.Waiter, applied: r.applied[:0]}
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

// CheckCost returns a *RangeError for what a hit cannot cost.
func CheckCost(cost int64) error {
	if cost < 1 || cost > MaxCost {
		return engine.OutOfRange(engine.ArgCost, "it is 1 to %d", MaxCost)
	}
	return nil
}

// stamps gives hits their stamps: Unix seconds that never go back.
type stamps struct{ last atomic.Int64 }

// next returns the second of the moment, or the last stamp where that is later.
func (s *stamps) next(now time.Time) int64 {
	for {
		last := s.last.Load()
		if now.Unix() <= last {
			return last
		}
		if s.last.CompareAndSwap(last, now.Unix()) {
			return now.Unix()
		}
	}
}

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
	return wall < -grace/4 || wall > grace/2
}
