package limiter

import (
	"context"
	"fmt"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// explainingTimeouts is the time for an explanation, in timeouts of a decision: it makes up to some ten round trips.
const explainingTimeouts = 10

// errUnexplained is the error of an explanation during which the store failed.
var errUnexplained = fmt.Errorf("%w while it was asked for an explanation", engine.ErrStore)

// Explained is what the count of a limit consists of, and the rule of the limit.
type Explained struct {
	engine.Explanation
	Rule *events.Rule
}

// Explain returns the decision of a Check and, for each of its limits, what the count consists of and the next moments,
// at most so many, at which it is lower. A limit that no store has decided has no explanation. It makes some more round
// trips, for which it has ten times the timeout. If the store fails then, the error wraps [engine.ErrStore].
func (l *Limiter) Explain(ctx context.Context, h Hit, moments int) (events.Decision, []Explained, error) {
	if err := ctx.Err(); err != nil {
		return events.Decision{}, nil, err
	}
	r := l.newRequest(ctx, h)
	defer l.freeRequest(r)
	explained := l.peek(r, max(moments, 1))
	l.report(r, h, CallCheck)
	return r.result.Decision, explained, r.result.Err
}

// peek checks the request for a client. If moments is not zero, it explains the limits.
func (l *Limiter) peek(r *request, moments int) (explained []Explained) {
	if r.result.Err != nil {
		return nil
	}
	if l.refuse(r) {
		return r.explainLists()
	}
	if l.pending.Enter(1) {
		defer l.pending.Leave(1)
	} else {
		r.overloaded = true
	}
	r.isHurried()
	r.open = append(r.open[:0], r)
	b := l.newBatch(r.open, false)
	b.at.Peek, b.moments = true, moments
	b.session.Check(b.ctx, b.at, b.tallies)
	b.decide(false)
	if moments > 0 {
		b.ctx = l.newContext(b.ctx, r.ctx, time.Now().Add(explainingTimeouts*l.timeout))
	}
	b.search()
	h := &b.hits[0]
	b.conclude(h)
	if moments > 0 {
		explained, r.result.Err = h.explain()
	}
	b.free()
	return explained
}

// explainLists returns the rules whose lists deny the hit, one for each limit.
func (r *request) explainLists() (all []Explained) {
	for i := range r.applied {
		for range r.uses[i].limits {
			if isListed(r.applied[i]) {
				all = append(all, Explained{Rule: r.applied[i].Rule})
			}
		}
	}
	return all
}

// explain returns the explanations of the hit's limits.
func (h *hit) explain() ([]Explained, error) {
	all := make([]Explained, len(h.answers))
	for i := range h.answers {
		a := &h.answers[i]
		all[i].Rule = a.Rule
		if a.search < 0 {
			continue
		}
		if all[i].Explanation = a.tally.Searches[a.search].Explanation; !all[i].Whole {
			return nil, errUnexplained
		}
	}
	return all, nil
}
