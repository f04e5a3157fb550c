package counterd

import (
	"context"

	"github.com/counterd/counterd/events"
)

// Override allows or denies one value of a feature, or replaces its rates, until a time.
type Override = events.Override

// SetOverride sets a temporary override, in place of one of its value. This Limiter decides by it when SetOverride
// returns, others on the same servers within two seconds. There are at most 100 at a time. After an ErrStore it may be set
// nevertheless: repeat the call.
func (l *Limiter) SetOverride(ctx context.Context, o Override) error {
	if _, err := l.event(ctx, o.Event); err != nil {
		return err
	}
	_, err := l.service.SetOverride(ctx, o)
	return err
}

// RemoveOverride ends a temporary override, and returns whether there was one. This Limiter decides without it when
// RemoveOverride returns, others within two seconds. It may be repeated.
func (l *Limiter) RemoveOverride(ctx context.Context, event, kind, value string) (bool, error) {
	if ctx == nil {
		return false, errNoContext
	}
	return l.service.RemoveOverride(ctx, event, kind, value)
}

// Overrides returns the temporary overrides in force, in the order of event, kind and value.
func (l *Limiter) Overrides() []Override { return l.service.Overrides() }
