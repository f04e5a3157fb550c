package limiter

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/events"
)

// request is a hit on its way from its caller to where it is decided, and back.
type request struct {
	ctx     context.Context
	cost    int64
	applied []events.Applied
	err     error // a fault of the hit

	began time.Time // when it came
	until time.Time // when its wait for the store is over
	// What it found when it last looked.
	overshoot overshoot

	decision Decision
	// What its caller waits for, if others decide it: nil when it is decided, or a
	// group that is now its to lead.
	turn   chan *group
	waited bool // its caller waits for turn
}

// newRequest finds the hit's rules and counters.
func (l *Limiter) newRequest(ctx context.Context, h Hit) *request {
	r, _ := l.requests.Get().(*request)
	if r == nil {
		r = &request{turn: make(chan *group, 1)}
	}
	r.ctx, r.cost, r.began = ctx, h.Cost, l.now()
	// Timeouts are real, whatever clock the stamps are of.
	if l.real {
		r.until = r.began.Add(l.timeout)
	} else {
		r.until = time.Now().Add(l.timeout)
	}
	r.applied, r.err = h.Event.Apply(r.applied, h.Features)
	r.err = errors.Join(r.err, CheckCost(h.Cost))
	return r
}

func (l *Limiter) freeRequest(r *request) {
	clear(r.applied)
	*r = request{applied: r.applied[:0], turn: r.turn}
	l.requests.Put(r)
}

// onSeveral reports whether the hit is on several counters.
func (r *request) onSeveral() bool {
	return slices.ContainsFunc(r.applied, func(a events.Applied) bool { return a.ID != r.applied[0].ID })
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
