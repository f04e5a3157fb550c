package api

import (
	"github.com/counterd/counterd/internal/httpdecision"

	"fmt"
	"time"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/service"
)

// overrides lists the temporary overrides in force.
func (e *endpoints) overrides(x *exchange) error {
	if err := noQuery(x.request); err != nil {
		return err
	}
	all := wire.Overrides{Overrides: []wire.Override{}}
	for _, one := range e.service.Overrides() {
		all.Overrides = append(all.Overrides, wireOverride(one))
	}
	e.Reply(x, all)
	return nil
}

// setOverride sets a temporary override.
func (e *endpoints) setOverride(x *exchange, event service.Event) error {
	var in wire.SetOverride
	if err := decodeBody(x.request, &in); err != nil {
		return err
	}
	o, faults := overrideOf(in)
	if len(faults) > 0 {
		return httpdecision.RequestError(faults)
	}
	o.Event = event.Name
	set, err := e.service.SetOverride(x.request.Context(), o)
	if err != nil {
		return err
	}
	e.Reply(x, wireOverride(set))
	return nil
}

// overrideOf reads an override, whose event the path has.
func overrideOf(in wire.SetOverride) (o events.Override, faults []wire.Fault) {
	fault := func(pointer, format string, args ...any) {
		faults = append(faults, wire.Fault{Pointer: pointer, Detail: fmt.Sprintf(format, args...)})
	}
	if len(in.Features) != 1 {
		fault("/features", "an override is of one feature: there are %d", len(in.Features))
	}
	for o.Kind, o.Value = range in.Features {
	}
	var known bool
	if o.Listing, known = events.ParseListing(in.Verdict); !known {
		fault("/verdict", "it is allow or deny")
	}
	for i, text := range in.Rates {
		rate, err := events.ParseRate(text)
		if err != nil {
			fault(fmt.Sprintf("/rates/%d", i), "it is written N/s, N/m, N/h, N/d or N/duration, as in 5/m or 100/15m")
		}
		o.Rates = append(o.Rates, rate)
	}
	switch holds, err := events.ParseDuration(in.For); {
	case (in.For == "") == in.Until.IsZero():
		fault("/until", "an override holds until a time, or for a duration: one of until and for is given")
	case in.For == "":
		o.Until = in.Until.Time
	case err != nil:
		fault("/for", "it is a duration in whole seconds, such as 15m or 24h")
	default:
		o.For = holds
	}
	return o, faults
}

// removeOverride ends a temporary override. The event may be one that the rules have no more.
func (e *endpoints) removeOverride(x *exchange) error {
	name := eventName(x)
	if !events.ValidName(name) && !events.IsDomain(name) {
		return events.ErrUnknownEvent
	}
	q, err := newQuery(x.request, "feature")
	if err != nil {
		return err
	}
	features := q.features(name)
	if len(q.faults) == 0 && len(features) != 1 {
		q.fault("feature", fmt.Sprintf("an override is of one feature: there are %d", len(features)))
	}
	if err := q.err(); err != nil {
		return err
	}
	for kind, value := range features {
		x.event = name
		removed, err := e.service.RemoveOverride(x.request.Context(), x.event, kind, value)
		if err != nil {
			return err
		}
		e.Reply(x, wire.RemovedOverride{Removed: removed})
	}
	return nil
}

func wireOverride(o events.Override) wire.Override {
	return wire.Override{
		Event: o.Event, Feature: o.Feature(), Verdict: o.Listing.String(), Rates: o.FormatRates(),
		Until: wire.Moment{Time: o.Until}, Set: wire.Moment{Time: o.Set.Truncate(time.Second)}, By: o.By, Idle: o.Idle,
	}
}
