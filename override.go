package counterd

import (
	"context"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/overrides"
)

// Override is what holds for one value of a feature instead of the rules, until a time: the value is allowed, denied, or
// has other rates.
type Override struct {
	Event       string
	Kind, Value string // such as ip and 192.0.2.1
	Allow, Deny bool   // at most one of them; neither: Rates hold
	// Rates, such as 100/m, replace the limits of their windows, of rules per the kind alone. Limits of other windows
	// stay. Limits that have no windows, such as token buckets, take none.
	Rates []string
	Until time.Time // in whole seconds; at most 30 days ahead
}

// SetOverride sets a temporary override, in place of one of its value. This Limiter decides by it when SetOverride
// returns, others on the same servers within two seconds. There are at most 100 at a time. After an ErrStore it may be set
// nevertheless: repeat the call.
func (l *Limiter) SetOverride(ctx context.Context, o Override) error {
	if _, err := l.event(ctx, o.Event); err != nil {
		return err
	}
	set := overrides.Override{Event: o.Event, Override: events.Override{Kind: o.Kind, Value: o.Value}, Until: o.Until}
	switch {
	case o.Allow && o.Deny:
		return errorf(ErrInvalid, "an override allows or denies, not both")
	case o.Allow:
		set.Listing = events.Allowed
	case o.Deny:
		set.Listing = events.Denied
	}
	for _, text := range o.Rates {
		rate, err := events.ParseRate(text)
		if err != nil {
			return err
		}
		set.Rates = append(set.Rates, rate)
	}
	_, err := l.service.SetOverride(ctx, set)
	return err
}

// RemoveOverride ends a temporary override, and returns whether there was one. This Limiter decides without it when
// RemoveOverride returns, others within two seconds. It may be repeated.
func (l *Limiter) RemoveOverride(ctx context.Context, event, kind, value string) (bool, error) {
	switch {
	case ctx == nil:
		return false, errNoContext
	case l.closed.Load():
		return false, ErrClosed
	}
	return l.service.RemoveOverride(ctx, event, kind, value)
}

// Overrides returns the temporary overrides in force, in the order of event, kind and value.
func (l *Limiter) Overrides() []Override {
	var all []Override
	for _, one := range l.service.Overrides() {
		all = append(all, Override{
			Event: one.Event, Kind: one.Kind, Value: one.Value, Until: one.Until, Rates: one.FormatRates(),
			Allow: one.Listing == events.Allowed, Deny: one.Listing == events.Denied,
		})
	}
	return all
}
