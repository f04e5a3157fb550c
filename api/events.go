package api

import (
	"cmp"
	"slices"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/service"
)

// events lists the rules in force.
func (e *endpoints) events(x *exchange) error {
	if err := noQuery(x.request); err != nil {
		return err
	}
	var all wire.Events
	for _, event := range e.service.Rules().All() {
		all.Events = append(all.Events, wireEvent(event))
	}
	e.Reply(x, all)
	return nil
}

// event shows the rules of one event.
func (e *endpoints) event(x *exchange, event service.Event) error {
	if err := noQuery(x.request); err != nil {
		return err
	}
	e.Reply(x, wireEvent(event.Event))
	return nil
}

func wireEvent(event *events.Event) wire.Event {
	out := wire.Event{Name: event.Name, Retention: events.FormatDuration(event.Remembered()), Methods: event.Methods}
	for i := range event.Rules {
		out.Rules = append(out.Rules, wireRule(&event.Rules[i]))
	}
	return out
}

func wireRule(rule *events.Rule) wire.Rule {
	out := wire.Rule{
		Per:       rule.Per,
		Limits:    wireLimits(rule.Limits),
		Allow:     rule.Allow.Strings(),
		Deny:      rule.Deny.Strings(),
		Precision: rule.Precision.String(),
		Count:     rule.Count.String(),
		Throttle:  rule.Throttle.String(),
		OnError:   rule.OnError.String(),
		Shadow:    rule.Shadow,
	}
	if slices.Contains(rule.Per, events.KindIP) && !rule.Verbatim {
		out.IPv6Prefix = cmp.Or(rule.IPv6Prefix, events.DefaultIPv6Prefix)
	}
	for value, limits := range rule.Overrides {
		if out.Overrides == nil {
			out.Overrides = map[string][]wire.Limit{}
		}
		out.Overrides[value] = wireLimits(limits)
	}
	return out
}

func wireLimits(limits []events.Limit) []wire.Limit {
	out := make([]wire.Limit, len(limits))
	for i, limit := range limits {
		out[i] = wire.Limit{Name: limit.Name, Limit: limit.N, Window: limit.WindowName(), Algorithm: limit.Algorithm, Burst: limit.Burst}
		if limit.Calendar != nil {
			out[i].Calendar = limit.Calendar.String()
		}
	}
	return out
}
