package counterd

import (
	"context"
	"log/slog"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/assembly"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/memcache"
)

// Hooks are called as a Limiter works, with the context of the call, from many goroutines at a time. They must not panic,
// and the caller waits for them. A nil hook is not called.
type Hooks struct {
	// StartSpan is called before a decision is made. It returns a context for the decision and its round trips, and a
	// function that ends the span, or nil if the span is not recorded. If failed is set, no decision was made. The
	// attributes describe the decision: strings, integers and slices of strings, as docs/tracing.md lists them.
	StartSpan func(ctx context.Context, name string) (context.Context, func(failed bool, attributes ...slog.Attr))
	// OnRoundTrip is called after each round trip to a Memcached server.
	OnRoundTrip func(ctx context.Context, trip memcache.RoundTrip)
	// OnDecision is called after each decision of a hit, or of a check. The decision has no Reservation. The hook must
	// not change its Limits.
	OnDecision func(ctx context.Context, hit Hit, check bool, d Decision)
	// OnStoreError is called with each failure of the store in a decision.
	OnStoreError func(error)
}

// WithHooks calls the hooks of h. If the option is given twice, the hooks of both are called, but only the later
// StartSpan.
func WithHooks(h Hooks) Option {
	return func(c *assembly.Config) {
		if h.StartSpan != nil {
			c.StartSpan = h.StartSpan
		}
		hooks := assembly.Hooks{OnRoundTrip: h.OnRoundTrip, OnStoreError: h.OnStoreError}
		if h.OnDecision != nil {
			hooks.OnDecision = func(ctx context.Context, hit limiter.Hit, d *events.Decision, call limiter.Call) {
				decided := Hit{Event: hit.Event.Name, Features: hit.Features, Cost: hit.Cost, Reserve: hit.Reserved}
				h.OnDecision(ctx, decided, call == limiter.CallCheck, *d)
			}
		}
		c.Hooks = append(c.Hooks, hooks)
	}
}
