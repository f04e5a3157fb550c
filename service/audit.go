package service

import (
	"context"
	"log/slog"

	"github.com/counterd/counterd/events"
)

// auditKey is the key of a context's log.
type auditKey struct{}

// WithAudit returns a context whose log gets a line for each change by hand, such as a Reset. The log has the name of
// the caller.
func WithAudit(ctx context.Context, log *slog.Logger) context.Context {
	return context.WithValue(ctx, auditKey{}, log)
}

// audit logs a change of a counter: its event and feature. No other line of a log has a feature.
func audit(ctx context.Context, change string, counter events.Counter) {
	if log, ok := ctx.Value(auditKey{}).(*slog.Logger); ok {
		log.Info(change, "event", counter.Event, "feature", counter.Feature.String())
	}
}
