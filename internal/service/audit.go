package service

import (
	"context"
	"log/slog"
)

// caller makes changes by hand.
type caller struct {
	name string
	log  *slog.Logger
}

// callerKey is the key of a context's caller.
type callerKey struct{}

// WithAudit returns a context of a caller of that name, whose log gets a line for each change by hand: a Reset or an
// override. The log has the name, too.
func WithAudit(ctx context.Context, name string, log *slog.Logger) context.Context {
	return context.WithValue(ctx, callerKey{}, caller{name, log.With("client", name)})
}

// callerOf returns the name of the context's caller; empty: none is known.
func callerOf(ctx context.Context) string {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c.name
}

// audit logs a change: its event and feature, and more. No other line of a log has a feature.
func audit(ctx context.Context, change, event, feature string, more ...any) {
	if c, ok := ctx.Value(callerKey{}).(caller); ok {
		c.log.Info(change, append([]any{"event", event, "feature", feature}, more...)...)
	}
}
