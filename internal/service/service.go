package service

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/insight/denied"
	"github.com/counterd/counterd/internal/insight/top"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/overrides"
	"github.com/counterd/counterd/internal/telemetry"
)

// Config sets up a Service. Rules, Limiter and Counters are needed, the latter two on one
// store.
type Config struct {
	Rules    func() *events.Rules // the rules in force
	Limiter  *limiter.Limiter
	Counters *counting.Counters
	// Seal keeps reservations from being altered, and their content from being read; empty: they
	// have a checksum only. All processes need the same.
	Seal []byte
	// Unsealed: hits may not reserve, since clients with different rights could alter reservations.
	Unsealed bool
	// StartSpan begins the span of each decision. If nil, decisions have no spans.
	StartSpan telemetry.Start
	// Overrides are the temporary overrides, which Rules returns with the rules; nil: there are none.
	Overrides *overrides.Set
	// Top knows the features with the most hits of this process; nil: there is none.
	Top *top.Top
}

// Service decides and counts by the rules in force. It is safe for concurrent use.
type Service struct {
	config Config
	calls  calls
}

// New returns a Service. Its error reports all that the config lacks.
func New(config Config) (*Service, error) {
	var faults []error
	for _, field := range []struct {
		missing bool
		fault   string
	}{
		{config.Rules == nil, "service: Rules is missing: it returns the rules in force"},
		{config.Limiter == nil, "service: Limiter is missing: it decides"},
		{config.Counters == nil, "service: Counters is missing: it counts"},
	} {
		if field.missing {
			faults = append(faults, errors.New(field.fault))
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return &Service{config: config, calls: calls{drained: make(chan struct{})}}, nil
}

// Event is an event, and the rules that were in force when a request asked for it. All
// that is done for the request goes by them, whatever is reloaded meanwhile.
type Event struct {
	*events.Event
	Rules *events.Rules
}

// Rules returns the rules in force.
func (s *Service) Rules() *events.Rules { return s.config.Rules() }

// Event returns the event of that name by the rules in force, or events.ErrUnknownEvent. A domain of Envoy's
// configuration is no event: its hits have descriptors.
func (s *Service) Event(name string) (Event, error) {
	event, err := s.EventOrDomain(name)
	if err == nil && event.Matcher != nil {
		return Event{Rules: event.Rules}, events.ErrUnknownEvent
	}
	return event, err
}

// EventOrDomain is Event, also for a domain of Envoy's configuration: its name is events.DomainPrefix and the domain.
func (s *Service) EventOrDomain(name string) (Event, error) {
	rules := s.Rules()
	event, err := rules.Event(name)
	if err != nil && events.IsDomain(name) {
		err = ErrUnknownDomain
	}
	return Event{event, rules}, err
}

// Hit adds a hit to its counters and decides it. A fault of the arguments is an error; a
// store that fails is a decision by the rules' on_error.
func (s *Service) Hit(ctx context.Context, event Event, features events.Features, cost int64) (events.Decision, error) {
	return s.Reserve(ctx, event, features, cost, 0)
}

// Check returns the decision that a hit would get, and adds nothing.
func (s *Service) Check(ctx context.Context, event Event, features events.Features, cost int64) (events.Decision, error) {
	result := s.Decide(ctx, limiter.Hit{Event: event.Event, Features: features, Cost: cost}, limiter.CallCheck)
	return result.Decision, result.Err
}

// explainedMoments is how many moments an explanation has at which room returns.
const explainedMoments = 10

// Explain returns the decision of a Check, and what it was computed from. See limiter.Limiter.Explain.
func (s *Service) Explain(ctx context.Context, event Event, features events.Features, cost int64) (d events.Decision, explained []limiter.Explained, err error) {
	hit := limiter.Hit{Event: event.Event, Features: features, Cost: cost}
	result := s.decide(ctx, hit, limiter.CallCheck, func(ctx context.Context) limiter.Result {
		d, explained, err = s.config.Limiter.Explain(ctx, hit, explainedMoments)
		return limiter.Result{Decision: d, Err: err}
	})
	return d, explained, result.Err
}

// Decide decides a hit as a Hit or as a Check. The decision has no Reservation: see ReservationOf.
func (s *Service) Decide(ctx context.Context, hit limiter.Hit, call limiter.Call) limiter.Result {
	return s.decide(ctx, hit, call, func(ctx context.Context) limiter.Result { return s.config.Limiter.Decide(ctx, hit, call) })
}

// decide decides within a span, unless the service is closed.
func (s *Service) decide(ctx context.Context, hit limiter.Hit, call limiter.Call, decide func(context.Context) limiter.Result) (result limiter.Result) {
	if err := s.calls.enter(); err != nil {
		return limiter.Result{Err: err}
	}
	defer func() {
		s.calls.refuseOutlived(&result)
		s.calls.leave()
	}()
	if s.config.StartSpan == nil {
		return decide(ctx)
	}
	ctx, end := s.config.StartSpan(ctx, spanName)
	if end == nil {
		return decide(ctx)
	}
	var attrs []slog.Attr
	failed := true // unless the limiter returns
	defer func() { end(failed, attrs...) }()
	result = decide(ctx)
	failed, attrs = result.Err != nil, describe(hit, call, &result)
	return result
}

// Hits decides several hits, at most limiter.MaxHits, those on one counter in their order. It
// returns a result for each of them, without a Reservation: see ReservationOf. That of a hit without an Event is events.ErrUnknownEvent.
// The error is that of the context, if it had ended before anything was done.
func (s *Service) Hits(ctx context.Context, hits []limiter.Hit) (results []limiter.Result, err error) {
	if err := s.calls.enter(); err != nil {
		return nil, err
	}
	defer func() {
		for i := range results {
			s.calls.refuseOutlived(&results[i])
		}
		s.calls.leave()
	}()
	if s.config.StartSpan == nil {
		return s.config.Limiter.Hits(ctx, hits)
	}
	ctx, end := s.config.StartSpan(ctx, spanName)
	if end == nil {
		return s.config.Limiter.Hits(ctx, hits)
	}
	var attrs []slog.Attr
	failed := true // unless the limiter returns
	defer func() { end(failed, attrs...) }()
	results, err = s.config.Limiter.Hits(ctx, hits)
	failed, attrs = err != nil, describeAll(results, len(hits), err)
	return results, err
}

// Top returns the features with the most hits of the last hour, as this process decided them.
func (s *Service) Top(q top.Query) top.List {
	if s.config.Top == nil {
		return top.List{}
	}
	return s.config.Top.List(q)
}

// Overrides returns the temporary overrides in force, in the order of their names.
func (s *Service) Overrides() []events.Override {
	if s.config.Overrides == nil {
		return nil
	}
	return s.config.Overrides.List()
}

// OverridesOf returns the temporary overrides in force of the features of an event.
func (s *Service) OverridesOf(event Event, features events.Features) []events.Override {
	return slices.DeleteFunc(s.Overrides(), func(o events.Override) bool {
		value, given := features[o.Kind]
		counted, err := event.CountedValue(o.Kind, value)
		return o.Event != event.Name || !given || err != nil || counted != o.Value
	})
}

// errNoOverrides is the error of an override where none are kept.
var errNoOverrides = &events.OverrideError{Reason: "this process keeps none"}

// SetOverride sets a temporary override. See overrides.Set.Put. It is by the caller of WithAudit, whose
// log has what was done.
func (s *Service) SetOverride(ctx context.Context, o events.Override) (events.Override, error) {
	if err := s.calls.enter(); err != nil {
		return o, err
	}
	defer s.calls.leave()
	if s.config.Overrides == nil {
		return o, errNoOverrides
	}
	o.By = callerOf(ctx)
	set, err := s.config.Overrides.Put(ctx, o)
	auditOverride(ctx, "override set", set, err)
	return set, err
}

// RemoveOverride ends a temporary override, and returns whether there was one. See overrides.Set.Remove. The context's
// log of WithAudit has what was done.
func (s *Service) RemoveOverride(ctx context.Context, event, kind, value string) (bool, error) {
	if err := s.calls.enter(); err != nil {
		return false, err
	}
	defer s.calls.leave()
	if s.config.Overrides == nil {
		return false, errNoOverrides
	}
	was, found, err := s.config.Overrides.Remove(ctx, event, kind, value)
	if found {
		auditOverride(ctx, "override removed", was, err)
	}
	return found, err
}

func auditOverride(ctx context.Context, change string, o events.Override, err error) {
	if errors.Is(err, engine.ErrStore) {
		change += ", perhaps"
	}
	if err == nil || errors.Is(err, engine.ErrStore) {
		audit(ctx, change, o.Event, o.Feature(), "override", o.String(), "until", o.Until)
	}
}

// Incremented is what an Increment has added to.
type Incremented struct {
	At       time.Time // in whole seconds, UTC
	Counters []events.Counter
}

// Increment adds by to the counters of the features: one for each of them, and one for each
// combination that a rule names. The zero time of at is now. Its error has all faults of
// the arguments, or is that of counting.Counters.Increment.
func (s *Service) Increment(ctx context.Context, event Event, features events.Features, by int64, at time.Time) (Incremented, error) {
	if err := s.calls.enter(); err != nil {
		return Incremented{}, err
	}
	defer s.calls.leave()
	counters, err := event.Counters(features)
	if err := errors.Join(err, counting.CheckBy(by)); err != nil {
		return Incremented{}, err
	}
	at, err = s.config.Counters.Increment(ctx, by, at, counters...)
	return Incremented{at, counters}, err
}

// Refund takes the latest events of one counter away. See counting.Counters.Refund.
func (s *Service) Refund(ctx context.Context, counter events.Counter, by int64) (int64, error) {
	if err := s.calls.enter(); err != nil {
		return 0, err
	}
	defer s.calls.leave()
	return s.config.Counters.Refund(ctx, by, counter)
}

// Count returns the sum of one counter over a window. See counting.Counters.Count.
func (s *Service) Count(ctx context.Context, counter events.Counter, window time.Duration, at time.Time) (engine.Count, error) {
	if err := s.calls.enter(); err != nil {
		return engine.Count{}, err
	}
	defer s.calls.leave()
	return s.config.Counters.Count(ctx, counter, window, at)
}

// History returns the intervals of one level of a counter. See counting.Counters.History.
func (s *Service) History(ctx context.Context, counter events.Counter, level engine.Level, from, to time.Time) (engine.History, error) {
	if err := s.calls.enter(); err != nil {
		return engine.History{}, err
	}
	defer s.calls.leave()
	return s.config.Counters.History(ctx, counter, level, from, to)
}

// DeniedHistory returns the denied hits of a counter by the minute, the hour or the day, as far back as package denied
// remembers them. A hit is among them two seconds after its decision. A Reset does not forget them.
func (s *Service) DeniedHistory(ctx context.Context, counter events.Counter, level engine.Level, from, to time.Time) (engine.History, error) {
	if err := s.calls.enter(); err != nil {
		return engine.History{}, err
	}
	defer s.calls.leave()
	event, err := s.EventOrDomain(counter.EventName())
	switch {
	case err != nil:
		return engine.History{}, err
	case level == engine.Second:
		return engine.History{}, engine.OutOfRange(engine.ArgLevel, "denied hits are counted by minute, hour and day")
	}
	return s.config.Counters.History(ctx, denied.CounterOf(event.Event, counter.Feature), level, from, to)
}

// Reset forgets one counter, but not its denied hits. An error of a store that was asked wraps ErrNotReset, too. The
// context's log of WithAudit has what was done.
func (s *Service) Reset(ctx context.Context, counter events.Counter) error {
	if err := s.calls.enter(); err != nil {
		return err
	}
	defer s.calls.leave()
	err := s.config.Counters.Reset(ctx, counter)
	if errors.Is(err, engine.ErrStore) && !errors.Is(err, ErrOverload) {
		err = resetError{err}
	}
	if err == nil {
		audit(ctx, "counter reset", counter.Event, counter.Feature.String())
	} else if errors.Is(err, ErrNotReset) {
		audit(ctx, "counter reset, perhaps in part", counter.Event, counter.Feature.String())
	}
	return err
}

// resetError is why the store did not reset a counter. Its text is the store's.
type resetError struct{ error }

func (e resetError) Unwrap() error { return e.error }

func (resetError) Is(target error) bool { return target == ErrNotReset }

// Outcome is a decision in one word.
type Outcome uint8

// The outcomes.
const (
	Allowed     Outcome = iota
	Denied              // a limit denies
	Unavailable         // no limit denies, but the store did not answer, and a rule refuses hits then
)

var outcomeNames = [...]string{Allowed: "allowed", Denied: "denied", Unavailable: "unavailable"}

// String returns allowed, denied or unavailable.
func (o Outcome) String() string { return outcomeNames[o] }

// OutcomeOf returns the outcome of a decision.
func OutcomeOf(d *events.Decision) Outcome {
	switch {
	case d.Allowed:
		return Allowed
	case d.Unavailable:
		return Unavailable
	}
	return Denied
}

// Unanswered reports whether neither the store nor this process's own counters could say
// how much of the limit is used.
func Unanswered(limit *events.LimitState) bool { return limit.Failed && limit.Unknown }

// Denies reports whether the limit is a reason to deny the hit. A hit that never fits is
// denied even where the store does not answer.
func Denies(limit *events.LimitState) bool {
	return limit.Vetoes() && (!Unanswered(limit) || limit.Reset == events.Never)
}
