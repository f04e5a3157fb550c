package counterd

import (
	"context"
	"errors"
	"time"

	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/service"
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

// HitN is Hit with a cost, 0 to 1,000,000. A hit of cost 0 adds nothing, and is allowed while no limit is exceeded.
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
func (l *Limiter) decide(ctx context.Context, name string, features Features, cost int64, by func(context.Context, service.Event, Features, int64) (Decision, error)) (Decision, error) {
	event, err := l.event(ctx, name)
	if err != nil {
		return Decision{}, err
	}
	if err := checkKinds(event.Event, features); err != nil {
		return Decision{}, err
	}
	return by(ctx, event, features, cost)
}

// Reserve is HitN with a cost, at least 1, that is an estimate, for at most so long, 1 s to 24 h in whole seconds: Settle
// replaces it by the true cost. Else the estimate counts.
func (l *Limiter) Reserve(ctx context.Context, event string, features Features, cost int64, d time.Duration) (Decision, error) {
	if err := limiter.CheckReserved(d); err != nil {
		return Decision{}, err
	}
	return l.decide(ctx, event, features, cost, func(ctx context.Context, event service.Event, features Features, cost int64) (Decision, error) {
		return l.service.Reserve(ctx, event, features, cost, d)
	})
}

// Settle replaces the cost that was reserved by the true one, 0 to 1,000,000, and releases the leases of the
// reservation. It may be repeated, on any process: with another cost it is an ErrSettled, after its time an
// ErrEnded. If it fails otherwise the estimate counts.
func (l *Limiter) Settle(ctx context.Context, reservation string, cost int64) error {
	if ctx == nil {
		return errNoContext
	}
	return l.service.Settle(ctx, reservation, cost)
}

// Release settles a reservation with the cost 0: what was reserved is given back, and the leases are free.
func (l *Limiter) Release(ctx context.Context, reservation string) error {
	return l.Settle(ctx, reservation, 0)
}

// Renew has the leases of the reservation end no sooner than so much after now, at most as long as a lease is
// by the rules in force, and returns the reservation to renew next. If one has ended it is an ErrEnded, and all
// are released. After an ErrStore they are as they were, or end later: repeat the call.
func (l *Limiter) Renew(ctx context.Context, reservation string, by time.Duration) (string, error) {
	if ctx == nil {
		return "", errNoContext
	}
	return l.service.Renew(ctx, reservation, by)
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
	rules := l.parts.Overrides.Rules()
	results := make([]Result, len(hits))
	places, wanted := make([]int, 0, len(hits)), make([]limiter.Hit, 0, len(hits))
	for i, hit := range hits {
		event, err := findEvent(ctx, rules, hit.Event)
		if err == nil {
			err = errors.Join(checkKinds(event, hit.Features), l.service.CheckReserve(hit.Reserve))
		}
		if err != nil {
			results[i].Err = err
			continue
		}
		if hit.Cost == 0 {
			hit.Cost = 1
		}
		places = append(places, i)
		wanted = append(wanted, limiter.Hit{Event: event, Features: hit.Features, Cost: hit.Cost, Reserved: hit.Reserve})
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
		result.Decision.Reservation = l.service.ReservationOf(result.Reserved)
		results[places[i]].Decision = result.Decision
	}
	return results, nil
}

// event returns the event of a call by the rules in force.
func (l *Limiter) event(ctx context.Context, name string) (service.Event, error) {
	rules := l.parts.Overrides.Rules()
	event, err := findEvent(ctx, rules, name)
	return service.Event{Event: event, Rules: rules}, err
}
