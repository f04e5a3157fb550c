package hierarchy

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/counterd/counterd/events"
)

// request is a hit on its way from its caller to where it is decided, and back.
type request struct {
	ctx     context.Context
	cost    int64
	rules   []*events.Rule // that apply
	applied []applied      // in their order
	err     error          // a fault of the hit

	began time.Time // when it came
	until time.Time // when its wait for the store is over
	crowd crowd     // what it found when it last looked

	decision Decision
	// What its caller waits for, if others decide it: nil when it is decided, or a
	// group that is now its to lead.
	turn   chan *group
	waited bool // somebody waits for it
}

// applied is a rule that applies to a hit, with its counter.
type applied struct {
	rule    *events.Rule
	counter events.Counter
	id      string // the counter's
	listing events.Listing
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
	r.err = r.resolve(h)
	return r
}

func (l *Limiter) freeRequest(r *request) {
	clear(r.rules)
	clear(r.applied)
	*r = request{rules: r.rules[:0], applied: r.applied[:0], turn: r.turn}
	l.requests.Put(r)
}

func (r *request) resolve(h Hit) error {
	var err error
	r.rules, err = h.Event.AppendApplying(r.rules, h.Features)
	if err = errors.Join(err, CheckCost(h.Cost)); err != nil {
		return err
	}
	for i, rule := range r.rules {
		a := applied{rule: rule, listing: rule.Listed(h.Features)}
		if i > 0 && slices.Equal(rule.Per, r.rules[i-1].Per) {
			a.counter, a.id = r.applied[i-1].counter, r.applied[i-1].id
		} else if a.counter, a.id, err = h.Event.CounterAndIDOf(rule, h.Features); err != nil {
			return err
		}
		r.applied = append(r.applied, a)
	}
	return nil
}

// onDenyList reports whether a rule denies the hit without asking.
func (r *request) onDenyList() bool {
	return slices.ContainsFunc(r.applied, func(a applied) bool { return a.listing == events.Denied && !a.rule.Shadow })
}

// mayBeDenied reports whether denials of one of the hit's counters are remembered.
func (l *Limiter) mayBeDenied(r *request) bool {
	return slices.ContainsFunc(r.applied, func(a applied) bool { return len(l.denials.of(a.id)) > 0 })
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
		return outOfRange(ArgCost, "it is 1 to %d", MaxCost)
	}
	return nil
}
