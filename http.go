package counterd

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/counterd/counterd/internal/httpdecision"
)

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

// CostOf says what a request costs, 0 to 1,000,000. Default: 1. See also [ReserveFor].
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
			c.OnDenied = answer
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
// for, are logged at once; requests are answered with an error until SetRules fits
// them, and are never served without the limit.
func (l *Limiter) Middleware(event string, options ...MiddlewareOption) func(http.Handler) http.Handler {
	config := httpdecision.MiddlewareConfig{Service: l.service, Event: event, Log: l.parts.Settings.Log}
	for _, option := range options {
		if option != nil {
			option(&config)
		}
	}
	middleware, err := httpdecision.NewMiddleware(config)
	if err == nil {
		return middleware
	}
	l.parts.Settings.Log.Error("a middleware does not fit the rules in force: its requests are answered with an error", "event", event, "error", oneLine(err))
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
func DecisionOf(ctx context.Context) (Decision, bool) { return httpdecision.DecisionOf(ctx) }

// oneLine returns the text of joined errors in one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
