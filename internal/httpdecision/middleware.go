package httpdecision

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/service"
)

// MiddlewareConfig says what a middleware limits, and how. Service and one of Event and
// EventOf are needed.
type MiddlewareConfig struct {
	Service *service.Service

	// Event is what each request does. EventOf says so of a single request; one
	// for which it returns "" is not limited.
	Event   string
	EventOf func(*http.Request) string

	// From says for kinds of features where requests carry them, instead of what
	// the rules say.
	From map[string]Extractor
	// Cost is what a request costs, 0 to limiter.MaxCost; any other cost is
	// answered 400. nil: each costs 1.
	Cost func(*http.Request) int64
	// Reserve is for how long the cost of a request is an estimate, whole seconds up to 24 h: by
	// the Reservation of DecisionOf the next handler settles it. 0: the cost is final.
	Reserve time.Duration

	// MaxWaiting bounds the requests that wait for their turn where a rule has a queue: one beyond it
	// is answered 503. 0: wire.DefaultMaxWaiting.
	MaxWaiting int

	// OnDenied answers a request that a limit denied. The headers that tell how
	// the limits stand, and when to come back, are set by then. nil: 429 with a
	// problem document, as the contract has it.
	OnDenied func(http.ResponseWriter, *http.Request, events.Decision)
	Log      *slog.Logger // nil: slog.Default
}

// NewMiddleware returns the middleware of the root package's Limiter.Middleware, which documents it.
//
// The error reports all faults of the config together. It is held against the
// rules in force; later rules have to fit it as well: an event that they
// no longer name is answered 500, not served without a limit.
func NewMiddleware(config MiddlewareConfig) (func(http.Handler) http.Handler, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	if config.Cost == nil {
		config.Cost = func(*http.Request) int64 { return 1 }
	}
	if config.EventOf == nil {
		config.EventOf = func(*http.Request) string { return config.Event }
	}
	config.From = maps.Clone(config.From)
	m := &middleware{config, NewResponder(config.Log), wire.NewTurns(max(config.MaxWaiting, 0))}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
	}, nil
}

type decisionKey struct{}

// DecisionOf returns the decision by which a middleware has admitted, or denied, the request of that context. Of several
// middlewares it is the innermost's. Its Reservation is without the leases, which the middleware releases: it is empty
// without MiddlewareConfig.Reserve.
func DecisionOf(ctx context.Context) (d events.Decision, found bool) {
	d, found = ctx.Value(decisionKey{}).(events.Decision)
	return d, found
}

// middleware limits requests, and answers denied ones.
type middleware struct {
	MiddlewareConfig
	*Responder
	wire.Turns
}

func (m *middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	name := m.EventOf(r)
	if name == "" {
		next.ServeHTTP(w, r)
		return
	}
	event, err := m.Service.Event(name)
	if err != nil {
		m.AnswerError(w, r, m.unnamed())
		return
	}
	if !event.HasMethod(r.Method) {
		next.ServeHTTP(w, r)
		return
	}
	result := HitOf(m.Service, r, event, m.From, m.Cost(r), m.Reserve)
	if result.Err != nil {
		m.AnswerError(w, r, result.Err)
		return
	}
	d := result.Decision
	if m.Reserve != 0 {
		d.Reservation = m.Service.ReservationOf(withoutLeases(result.Reserved))
	}
	m.answerHit(w, r.WithContext(context.WithValue(r.Context(), decisionKey{}, d)), event, d, result.Reserved, next)
}

// answerHit has the next handler serve an admitted request, and answers a denied one.
func (m *middleware) answerHit(w http.ResponseWriter, r *http.Request, event service.Event, d events.Decision, reserved []engine.Reserved, next http.Handler) {
	SetHeaders(w.Header(), event.Rules, &d)
	switch {
	case d.Allowed:
		if l := leaseOf(reserved); l != nil {
			ctx, cancel := context.WithCancelCause(r.Context())
			defer cancel(nil)
			r = r.WithContext(ctx)
			l.keep(m, r, cancel)
			defer l.release(m, w, r) // also if the handler panics
		}
		if err := m.Await(r.Context(), d.Wait); err != nil {
			m.release(w, r, withoutLeases(reserved))
			if errors.Is(err, wire.ErrTooManyWait) {
				err = fmt.Errorf("%w: %w", service.ErrOverload, err)
			}
			m.AnswerError(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	case m.OnDenied != nil && !d.Unavailable:
		m.OnDenied(w, r, d)
	default:
		m.AnswerDecision(w, r, event, d, http.StatusTooManyRequests)
	}
}

// unnamed is why a request is not served whose event the rules do not name. What EventOf
// makes of a request may hold anything of it.
func (m *middleware) unnamed() error {
	if m.Event == "" {
		return errors.New("api: middleware: the rules in force do not name the event that EventOf returns")
	}
	return fmt.Errorf("api: middleware: the rules in force do not name the event %q", m.Event)
}

// HitOf decides a request as a hit, its features taken from it, and reserves its cost if reserve is
// not 0. Faults have the request for their place, which has no body or query of ours.
func HitOf(
	s *service.Service, r *http.Request, event service.Event, own map[string]Extractor, cost int64, reserve time.Duration,
) limiter.Result {
	features, err := featuresOf(r, event, own)
	if err != nil {
		return limiter.Result{Err: inRequest(err)}
	}
	result := s.ReserveUnsealed(r.Context(), event, features, cost, reserve)
	result.Err = inRequest(result.Err)
	return result
}

// inRequest takes from faults of a hit their places in a body or a query. Other
// errors it returns as they are.
func inRequest(err error) error {
	if !errors.Is(err, events.ErrInvalid) && !errors.Is(err, engine.ErrOutOfRange) {
		return err
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, one := range joined.Unwrap() {
			all = append(all, inRequest(one))
		}
		return errors.Join(all...)
	}
	return RequestError{{Detail: err.Error()}}
}

// validate reports all that is wrong with the config.
func (c *MiddlewareConfig) validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("api: middleware: "+format, args...))
	}
	if c.Service == nil {
		fault("Service is missing: it decides")
	}
	switch {
	case c.Event == "" && c.EventOf == nil:
		fault("Event is missing, and so is EventOf: one of them says what a request does")
	case c.Event != "" && c.EventOf != nil:
		fault("Event and EventOf are both given: leave one out")
	}
	for _, kind := range slices.Sorted(maps.Keys(c.From)) {
		// Any kind but ip takes an address for a value, too.
		if err := (events.Features{kind: "::1"}).Validate(); err != nil {
			fault("From: %q: %w", kind, err)
		}
		if c.From[kind] == nil {
			fault("From: %q has no extractor: name one, or FromNone", kind)
		}
	}
	if c.Reserve != 0 {
		if err := limiter.CheckReserved(c.Reserve); err != nil {
			fault("Reserve: %w", err)
		}
		if c.Service != nil && c.Service.CheckReserve(c.Reserve) != nil {
			fault("Reserve: tokens without a key secret: clients could alter the reservations of others")
		}
	}
	switch {
	case c.Service == nil:
	case c.Service.Rules() == nil:
		fault("Service has no rules in force")
	case c.Event != "":
		faults = append(faults, c.fits(c.Service.Rules()))
	}
	return errors.Join(faults...)
}

// fits reports which limits of the event could never apply by those rules.
func (c *MiddlewareConfig) fits(rules *events.Rules) error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("api: middleware: "+format, args...))
	}
	event := rules.Events[c.Event]
	if event == nil {
		fault("Event: the rules do not name %q", c.Event)
		return errors.Join(faults...)
	}
	if len(event.Rules) == 0 {
		fault("Event: %s has no limits", event.Name)
	}
	for _, kind := range event.Kinds() {
		if c.From[kind] != nil {
			continue
		}
		source := event.Source(kind)
		_, said := event.From[kind]
		switch {
		case source.Place == events.FromNone && !said:
			fault("From: %s has limits per %s, and nothing says where requests carry it: name an extractor, FromNone if they do not", event.Name, kind)
		case source.Place == events.FromForwarded && len(rules.TrustedProxies.Prefixes()) == 0:
			fault("Rules: forwarded addresses are believed from TrustedProxies only, and there are none")
		}
	}
	return errors.Join(faults...)
}
