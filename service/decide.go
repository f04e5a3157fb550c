package service

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/limiter"
)

// Hit adds a hit to its counters and decides it. A fault of the arguments is an error; a
// store that fails is a decision by the rules' on_error.
func (s *Service) Hit(ctx context.Context, event Event, features events.Features, cost int64) (limiter.Decision, error) {
	return s.decide(ctx, limiter.Hit{Event: event.Event, Features: features, Cost: cost}, limiter.CallHit, s.config.Limiter.Hit)
}

// Check returns the decision that a hit would get, and adds nothing.
func (s *Service) Check(ctx context.Context, event Event, features events.Features, cost int64) (limiter.Decision, error) {
	return s.decide(ctx, limiter.Hit{Event: event.Event, Features: features, Cost: cost}, limiter.CallCheck, s.config.Limiter.Check)
}

type decider = func(context.Context, limiter.Hit) (limiter.Decision, error)

// decide has the limiter decide, within a span.
func (s *Service) decide(ctx context.Context, hit limiter.Hit, call limiter.Call, limiter decider) (limiter.Decision, error) {
	ctx, span := s.startSpan(ctx)
	if span == nil {
		return limiter(ctx, hit)
	}
	defer span.End() // also when the limiter panics
	d, err := limiter(ctx, hit)
	if span.IsRecording() {
		describe(span, hit, call, &d, err)
	}
	return d, err
}

// Hit is one of several hits.
type Hit struct {
	Event    string
	Features events.Features
	Cost     int64
}

// Hits decides several hits by the rules in force, at most limiter.MaxHits: those on one
// counter in their order. It returns a result for each of them; that of an event which the
// rules do not name is events.ErrUnknownEvent. The error is that of the context, if it had
// ended before anything was done.
func (s *Service) Hits(ctx context.Context, hits []Hit) ([]limiter.Result, error) {
	batch := batches.Get().(*batch)
	defer batch.free()
	batch.add(s.Rules(), hits)
	results, err := s.decideAll(ctx, batch.hits)
	if err != nil || len(results) == len(hits) {
		return results, err
	}
	return batch.spread(results), nil
}

// decideAll has the limiter decide several hits, within a span.
func (s *Service) decideAll(ctx context.Context, hits []limiter.Hit) ([]limiter.Result, error) {
	ctx, span := s.startSpan(ctx)
	if span == nil {
		return s.config.Limiter.Hits(ctx, hits)
	}
	defer span.End()
	results, err := s.config.Limiter.Hits(ctx, hits)
	if span.IsRecording() {
		describeAll(span, results, len(hits), err)
	}
	return results, err
}

// batch holds the hits of one call of Hits while they are decided, and those of another
// call afterwards.
type batch struct {
	hits   []limiter.Hit   // on events that the rules name
	events []*events.Event // of each hit; nil: the rules do not name it
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// add adds the hits on events that the rules name.
func (b *batch) add(rules *events.Rules, hits []Hit) {
	for i := range hits {
		event := rules.Events[hits[i].Event]
		b.events = append(b.events, event)
		if event != nil {
			b.hits = append(b.hits, limiter.Hit{Event: event, Features: hits[i].Features, Cost: hits[i].Cost})
		}
	}
}

// spread returns the results at the places of their hits, and errors at the others.
func (b *batch) spread(results []limiter.Result) []limiter.Result {
	all := make([]limiter.Result, len(b.events))
	for i, event := range b.events {
		if event == nil {
			all[i].Err = events.ErrUnknownEvent
			continue
		}
		all[i], results = results[0], results[1:]
	}
	return all
}

// free gives the batch to the next call. It holds no features from then on.
func (b *batch) free() {
	clear(b.hits)
	clear(b.events)
	b.hits, b.events = b.hits[:0], b.events[:0]
	batches.Put(b)
}

// startSpan begins the span of a decision. It is nil without a Tracer, and where the caller
// has decided that its trace is not sampled.
func (s *Service) startSpan(ctx context.Context) (context.Context, trace.Span) {
	if s.config.Tracer == nil {
		return ctx, nil
	}
	if parent := trace.SpanContextFromContext(ctx); parent.IsValid() && !parent.IsSampled() {
		return ctx, nil
	}
	return s.config.Tracer.Start(ctx, "decide")
}

// describe says in a span what was decided. A span holds names of the rules and numbers, no
// feature and no text of an error.
func describe(span trace.Span, hit limiter.Hit, call limiter.Call, d *limiter.Decision, err error) {
	span.SetAttributes(
		attribute.String("counterd.event", hit.Event.Name),
		attribute.String("counterd.call", call.String()),
		attribute.Int64("counterd.cost", hit.Cost),
	)
	if err != nil {
		span.SetStatus(codes.Error, "")
		return
	}
	span.SetAttributes(attributesOf(d)...)
}

// describeAll says in a span how many of several hits had which outcome.
func describeAll(span trace.Span, results []limiter.Result, hits int, err error) {
	span.SetAttributes(attribute.Int("counterd.hits", hits))
	if err != nil {
		span.SetStatus(codes.Error, "")
		return
	}
	faulty, outcomes := 0, [len(outcomeNames)]int{}
	for i := range results {
		if results[i].Err != nil {
			faulty++
		} else {
			outcomes[OutcomeOf(&results[i].Decision)]++
		}
	}
	for outcome, n := range outcomes {
		if n > 0 {
			span.SetAttributes(attribute.Int("counterd.hits."+outcomeNames[outcome], n))
		}
	}
	if faulty > 0 {
		span.SetAttributes(attribute.Int("counterd.hits.faulty", faulty))
	}
}

// attributesOf returns the outcome of a decision, and the names of its limits by what each
// of them says.
func attributesOf(d *limiter.Decision) []attribute.KeyValue {
	attrs := []attribute.KeyValue{attribute.String("counterd.verdict", OutcomeOf(d).String())}
	if d.RetryAfter != engine.Never {
		attrs = append(attrs, attribute.Int64("counterd.retry_after", int64(d.RetryAfter)))
	}
	var allowed, denied, shadow, failed []string
	for i := range d.Limits {
		limit := &d.Limits[i]
		if limit.Failed {
			failed = append(failed, limit.Name)
		}
		switch {
		case limit.Allowed:
			allowed = append(allowed, limit.Name)
		case limit.Shadow:
			shadow = append(shadow, limit.Name)
		case Denies(limit):
			denied = append(denied, limit.Name)
		}
	}
	for _, list := range []struct {
		key   string
		names []string
	}{
		{"counterd.limits.allowed", allowed}, {"counterd.limits.denied", denied},
		{"counterd.limits.shadow_denied", shadow}, {"counterd.limits.on_error", failed},
	} {
		if len(list.names) > 0 {
			attrs = append(attrs, attribute.StringSlice(list.key, list.names))
		}
	}
	return attrs
}
