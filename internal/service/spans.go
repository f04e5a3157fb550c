package service

import (
	"log/slog"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// spanName is the name of a decision's span.
const spanName = "decide"

// describe returns the attributes of the span of a decision: names of the rules and numbers, no feature and no text
// of an error.
func describe(hit limiter.Hit, call limiter.Call, result *limiter.Result) []slog.Attr {
	attrs := []slog.Attr{slog.String("counterd.event", hit.Event.Name), slog.String("counterd.call", call.String())}
	if len(hit.Parts) > 0 {
		attrs = append(attrs, slog.Int("counterd.parts", len(hit.Parts)))
	} else {
		attrs = append(attrs, slog.Int64("counterd.cost", hit.Cost))
	}
	if result.Err != nil {
		return attrs
	}
	d := &result.Decision
	attrs = append(attrs, slog.String("counterd.verdict", OutcomeOf(d).String()))
	if d.RetryAfter != events.Never {
		attrs = append(attrs, slog.Int64("counterd.retry_after", engine.CeilSeconds(d.RetryAfter)))
	}
	return append(attrs, describeLimits(d.Limits)...)
}

// describeLimits returns the names of limits, by the decision of each.
func describeLimits(limits []events.LimitState) []slog.Attr {
	var allowed, denied, shadow, failed []string
	for i := range limits {
		limit := &limits[i]
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
	var attrs []slog.Attr
	for _, list := range []struct {
		key   string
		names []string
	}{
		{"counterd.limits.allowed", allowed}, {"counterd.limits.denied", denied},
		{"counterd.limits.shadow_denied", shadow}, {"counterd.limits.on_error", failed},
	} {
		if len(list.names) > 0 {
			attrs = append(attrs, slog.Any(list.key, list.names))
		}
	}
	return attrs
}

// describeAll returns the attributes of the span of several hits: how many had which outcome.
func describeAll(results []limiter.Result, hits int, err error) []slog.Attr {
	attrs := []slog.Attr{slog.Int("counterd.hits", hits)}
	if err != nil {
		return attrs
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
			attrs = append(attrs, slog.Int("counterd.hits."+outcomeNames[outcome], n))
		}
	}
	if faulty > 0 {
		attrs = append(attrs, slog.Int("counterd.hits.faulty", faulty))
	}
	return attrs
}
