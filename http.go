package counterd

import (
	"context"
	"net/http"
	"time"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/api/page"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/internal/httpdecision"
	"github.com/counterd/counterd/internal/insight/top"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/rls"
	"github.com/counterd/counterd/internal/serving"
	"github.com/counterd/counterd/internal/telemetry/tracing"
	"github.com/counterd/counterd/metrics"
)

// Handler returns the whole HTTP interface, as docs/http.md describes it, metrics included. With
// WithTokens it lets callers in by their tokens. Without, every caller that reaches it
// is let in, so the program decides which do.
func (l *Limiter) Handler() http.Handler { return l.handler }

// apiConfig returns what handlers work with, without a gate.
func (p *process) apiConfig() api.Config {
	config := api.Config{
		Service:   p.service,
		Health:    p.access.Health(p.backend.States(), p.backend.Clock),
		Peers:     p.peers,
		Metrics:   p.metrics.Handler(),
		OnRequest: p.metrics.OnRequest,
		Log:       p.settings.Log,
		AccessLog: p.settings.AccessLog,
	}
	if p.spans.tracer != nil {
		config.StartSpan, config.TraceID = tracing.StartRequest(p.spans.tracer), tracing.TraceID
	}
	return config
}

// page returns the page for the person on call.
func (p *process) page() http.Handler {
	return page.New(page.Config{
		Service: p.service,
		Top: func(r *http.Request, q top.Query) wire.Top {
			return p.peers.Top(r.Context(), api.TokenOf(r), p.service.Top(p.peers.Asked(q)), q)
		},
		Denials: p.top.Denials,
		Health:  p.access.Health(p.backend.States(), p.backend.Clock),
		Source:  func() (string, int64) { return p.rules.File(), p.rules.Generation() },
		Clock:   p.settings.Clock,
		Log:     p.settings.Log,
	})
}

// rlsConfig returns what Envoy's rate limit service works with, which answers at most so many calls at a time.
func (p *process) rlsConfig(most int) rls.Config {
	return rls.Config{
		Service:     p.service,
		Gate:        p.access.Gate(most),
		Descriptors: p.domains.Config,
		Health:      p.access.Health(p.backend.States(), p.backend.Clock),
		OnCall:      p.metrics.WatchCalls(),
		Log:         p.settings.Log,
		AccessLog:   p.settings.AccessLog,
		Tracer:      p.spans.tracer,
	}
}

// Serve serves the HTTP interface as the command does, on the address of WithListen, and Envoy's
// rate limit service on that of WithRLS, until the context ends or the limiter is closed; then it
// finishes the requests in flight. A limiter serves once.
func (l *Limiter) Serve(ctx context.Context) error {
	if ctx == nil {
		return errNoContext
	}
	if err := l.life.enter(); err != nil {
		return err
	}
	defer l.life.leave()
	if l.served.Swap(true) {
		return errorf(ErrInvalid, "Serve was called before: a limiter serves once")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.life.ctx, cancel)()
	most := serving.Connections(l.settings, len(l.backend.Health()))
	listeners, err := serving.Listen(l.settings, l.access, most)
	if err != nil {
		return err
	}
	l.metrics.Watch(metrics.Process{Connections: listeners})
	config := l.apiConfig()
	if l.settings.RLS != "" {
		service, err := rls.New(l.rlsConfig(most))
		if err != nil {
			return err
		}
		listeners.HandleRLS(service)
		config.RLS = service
	}
	config.Page = l.page()
	listeners.Handle(config, most)
	return listeners.Serve(ctx, len(l.rules.Rules().Events))
}

// MiddlewareOption is a setting of a middleware.
type MiddlewareOption func(*httpdecision.MiddlewareConfig)

// FeatureFrom says where requests carry the features of a kind, instead of what the rules say.
// An empty value is none: limits per that kind do not apply to the request. An error whose cause
// is ErrInvalid is answered 400, any other 500.
func FeatureFrom(kind string, value func(*http.Request) (string, error)) MiddlewareOption {
	return func(c *httpdecision.MiddlewareConfig) {
		if c.From == nil {
			c.From = map[string]httpdecision.Extractor{}
		}
		c.From[kind] = value
	}
}

// CostOf says what a request costs, 1 to 1,000,000. Default: 1. See also [ReserveFor].
func CostOf(cost func(*http.Request) int64) MiddlewareOption {
	return func(c *httpdecision.MiddlewareConfig) { c.Cost = cost }
}

// ReserveFor makes the cost of a request an estimate, for at most so long, 1 s to 24 h in whole seconds: the
// next handler settles it by [Limiter.Settle] with [Decision.Reservation] of DecisionOf. Else the estimate counts.
// The time begins with the request: where a limit has a queue, take more than its longest wait.
func ReserveFor(d time.Duration) MiddlewareOption {
	return func(c *httpdecision.MiddlewareConfig) { c.Reserve = d }
}

// MaxWaiting bounds the requests that wait for their turns at once. Default, also of 0 or less: 10,000.
func MaxWaiting(n int) MiddlewareOption {
	return func(c *httpdecision.MiddlewareConfig) { c.MaxWaiting = n }
}

// OnDenied answers requests that a limit denies. The headers of the decision are set before.
// Default: 429 with a problem document.
func OnDenied(answer func(http.ResponseWriter, *http.Request, Decision)) MiddlewareOption {
	return func(c *httpdecision.MiddlewareConfig) {
		if answer != nil {
			c.OnDenied = func(w http.ResponseWriter, r *http.Request, d limiter.Decision) { answer(w, r, decisionOf(d)) }
		}
	}
}

// Middleware returns a middleware for net/http that counts each request as a hit on the event:
// the next handler serves the allowed ones, and finds the decision by DecisionOf. The
// features come from where the rules say: by default ip is the peer's address and user the bearer
// token. A denied request is answered 429, with Retry-After; one without a feature that a limit
// needs 400; and 503 where the store does not answer and a rule has on_error: deny.
//
// Where a rule has a queue, an allowed request waits for its turn. If its context ends before, or [MaxWaiting]
// requests wait, it is answered 503, and its turn is given back.
//
// The leases that a request takes are renewed until the next handler returns, and released then. If one is
// lost all the same, the context of the request is canceled: context.Cause returns ErrEnded.
//
// An event that the rules do not have, or limits per a kind that no place in a request is named
// for, are logged at once; requests are answered with an error until SetRules or a reload fits
// them, and are never served without the limit.
func (l *Limiter) Middleware(event string, options ...MiddlewareOption) func(http.Handler) http.Handler {
	config := httpdecision.MiddlewareConfig{Service: l.service, Event: event, Log: l.settings.Log}
	for _, option := range options {
		if option != nil {
			option(&config)
		}
	}
	middleware, err := httpdecision.NewMiddleware(config)
	if err == nil {
		return middleware
	}
	l.settings.Log.Error("a middleware does not fit the rules in force: its requests are answered with an error", "event", event, "error", oneLine(err))
	config.Event, config.EventOf = "", func(*http.Request) string { return event }
	if middleware, err = httpdecision.NewMiddleware(config); err == nil && event != "" {
		return middleware
	}
	return func(http.Handler) http.Handler { return http.HandlerFunc(refuse) }
}

// refuse answers a request whose middleware is set up wrongly.
func refuse(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
}

// DecisionOf returns the decision by which a middleware has allowed, or denied, the request of a
// context. Of several middlewares it is that of the innermost.
func DecisionOf(ctx context.Context) (Decision, bool) {
	d, found := httpdecision.DecisionOf(ctx)
	if !found {
		return Decision{}, false
	}
	decision := decisionOf(d)
	decision.Reservation = httpdecision.ReservationOf(ctx)
	return decision, true
}
