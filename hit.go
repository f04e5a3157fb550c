package counterd

import (
	"context"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/limiter"
	"github.com/counterd/counterd/service"
)

// Hit counts an event and decides whether it is allowed: it is if all limits per its features
// have room for a cost of 1. It does not wait for its turn where a rule has a queue: Decision.Wait says
// how long that is. A denied hit is not counted, unless a rule has count: all. It is an
// error if the rules have no such event, if no limit is per one of the features, or if the
// features of every limit are missing. A store that fails is none: the on_error of the rules
// decides.
func (l *Limiter) Hit(ctx context.Context, event string, features Features) (Decision, error) {
	return l.decide(ctx, event, features, 1, l.service.Hit)
}

// HitN is Hit with a cost, 1 to 1,000,000.
func (l *Limiter) HitN(ctx context.Context, event string, features Features, cost int64) (Decision, error) {
	return l.decide(ctx, event, features, cost, l.service.Hit)
}

// Check returns the decision that Hit would return, and counts nothing. Do not check and then
// hit: Hit decides by itself, and between the two other hits may come.
func (l *Limiter) Check(ctx context.Context, event string, features Features) (Decision, error) {
	return l.decide(ctx, event, features, 1, l.service.Check)
}

// CheckN is Check with a cost.
func (l *Limiter) CheckN(ctx context.Context, event string, features Features, cost int64) (Decision, error) {
	return l.decide(ctx, event, features, cost, l.service.Check)
}

// decide has the service decide a hit.
func (p *process) decide(ctx context.Context, name string, features Features, cost int64, by func(context.Context, service.Event, events.Features, int64) (limiter.Decision, error)) (Decision, error) {
	event, err := p.event(ctx, name)
	if err != nil {
		return Decision{}, err
	}
	if err := checkKinds(event.Event, features); err != nil {
		return Decision{}, err
	}
	d, err := by(ctx, event, events.Features(features), cost)
	if err != nil {
		return Decision{}, err
	}
	return decisionOf(d), nil
}

// Hits decides up to 1,000 hits at once, those on the same counter in their order, and returns
// a result for each. The error is that of the batch as a whole.
func (l *Limiter) Hits(ctx context.Context, hits []Hit) ([]Result, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	if len(hits) > limiter.MaxHits {
		return nil, errorf(ErrOutOfRange, "%d hits are too many: at most %d are decided together", len(hits), limiter.MaxHits)
	}
	rules := l.rules.Rules()
	results := make([]Result, len(hits))
	places, wanted := make([]int, 0, len(hits)), make([]limiter.Hit, 0, len(hits))
	for i, hit := range hits {
		event, err := findEvent(ctx, rules, hit.Event)
		if err == nil {
			err = checkKinds(event, hit.Features)
		}
		if err != nil {
			results[i].Err = err
			continue
		}
		if hit.Cost == 0 {
			hit.Cost = 1
		}
		places = append(places, i)
		wanted = append(wanted, limiter.Hit{Event: event, Features: events.Features(hit.Features), Cost: hit.Cost})
	}
	if l.life.ctx.Err() != nil {
		return nil, ErrClosed
	}
	decided, err := l.service.Hits(ctx, wanted)
	if err != nil {
		return nil, err
	}
	for i, result := range decided {
		if result.Err != nil {
			results[places[i]].Err = result.Err
			continue
		}
		results[places[i]].Decision = decisionOf(result.Decision)
	}
	return results, nil
}

// event returns the event of a call by the rules in force.
func (p *process) event(ctx context.Context, name string) (service.Event, error) {
	rules := p.rules.Rules()
	event, err := findEvent(ctx, rules, name)
	if err == nil && p.life.ctx.Err() != nil {
		err = ErrClosed
	}
	return service.Event{Event: event, Rules: rules}, err
}
