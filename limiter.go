package counterd

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/backend"
	"github.com/counterd/counterd/internal/follow"
	"github.com/counterd/counterd/internal/metrics"
	"github.com/counterd/counterd/internal/serving"
	"github.com/counterd/counterd/internal/settings"
	"github.com/counterd/counterd/internal/sparse"
	"github.com/counterd/counterd/limiter"
	"github.com/counterd/counterd/memcache"
	"github.com/counterd/counterd/service"
	"github.com/counterd/counterd/tracing"
)

// Limiter decides hits and counts events. It is safe for concurrent use, and one serves a whole
// program. Close ends it.
type Limiter struct {
	settings settings.Settings
	rules    *follow.Rules
	spans    spans
	backend  *backend.Backend
	access   *serving.Access
	service  *service.Service
	metrics  *metrics.Metrics
	handler  http.Handler
	life     *life
	served   atomic.Bool
}

// New returns a Limiter by those rules. Servers that do not answer are no error: the rules say
// what is decided without them. The error lists all faults of the options, or says why a file or
// a server's name cannot be used.
func New(rules Rules, options ...Option) (*Limiter, error) {
	s := settings.Default()
	for _, option := range options {
		if option == nil {
			s.Invalid = append(s.Invalid, errorf(ErrInvalid, "an option is nil"))
			continue
		}
		option(&s)
	}
	if rules.parsed == nil {
		s.Invalid = append(s.Invalid, errNoRules)
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	l := &Limiter{settings: s, metrics: metrics.New(), life: newLife()}
	if err := open(l, rules); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// open opens what the limiter works with, each on what is opened before it.
func open(l *Limiter, rules Rules) (err error) {
	s := l.settings
	if !s.Follow {
		rules.file = follow.RulesFile{}
	}
	l.rules = follow.NewRules(rules.parsed, rules.file, s.Log)
	if l.spans, err = openSpans(s); err != nil {
		return err
	}
	if l.access, err = serving.OpenAccess(s); err != nil {
		return err
	}
	roundTrips := l.metrics.OnRoundTrip
	if l.spans.tracer != nil {
		roundTrips = both(l.metrics.OnRoundTrip, tracing.Trips(l.spans.tracer))
	}
	if l.backend, err = backend.Open(s.Start, s, backend.Config{Retention: l.rules.Longest, OnRoundTrip: roundTrips}); err != nil {
		return err
	}
	counters := hierarchy.NewCounters(hierarchy.Config{Store: l.backend.Store, Grace: s.Grace, MaxPending: s.MaxPending, OnUse: l.backend.OnUse})
	decider, err := newDecider(l, counters)
	if err != nil {
		return err
	}
	watch(l, metrics.Process{Limiter: decider, Counters: counters})
	l.service, err = service.New(service.Config{Rules: l.rules.Rules, Limiter: decider, Counters: counters, Tracer: l.spans.tracer})
	if err != nil {
		return err
	}
	config := apiConfig(l)
	config.Gate = l.access.Gate(s.MaxConnections)
	l.handler = api.NewHandler(config)
	l.life.relay(s.Asks, l.rules.Ask, l.backend.Ask, l.access.Ask)
	return nil
}

// newDecider returns what decides hits on the counters. Failures of the store are logged at most
// once a second for each cause.
func newDecider(l *Limiter, counters *hierarchy.Counters) (*limiter.Limiter, error) {
	var failures sparse.Lines
	config := limiter.Config{
		Engine:     counters,
		Local:      backend.NewEmbedded(l.settings.Log),
		Timeout:    l.settings.Timeout,
		MaxPending: l.settings.MaxPending,
		OnDecision: l.metrics.OnDecision,
		OnStoreError: func(err error) {
			failures.Do(sparse.CauseOf(err), func(suppressed int64) {
				l.settings.Log.Warn("store failed in a decision", "error", err, "suppressed", suppressed)
			})
		},
	}
	if l.spans.tracer != nil {
		config.OnCoalesced = tracing.Together
	}
	return limiter.New(config)
}

// both returns a hook that calls the one and then the other.
func both(one, other func(context.Context, memcache.RoundTrip)) func(context.Context, memcache.RoundTrip) {
	return func(ctx context.Context, trip memcache.RoundTrip) {
		one(ctx, trip)
		other(ctx, trip)
	}
}

// watch adds all parts to the metrics, beside those of the process.
func watch(l *Limiter, process metrics.Process) {
	process.Rules, process.Generation, process.ReloadFailures = l.rules.Rules, l.rules.Generation, l.rules.Failures
	l.backend.Watch(l.metrics, &process)
	l.metrics.Watch(process)
	l.access.Watch(l.metrics)
	var followed serving.Refused
	if l.rules.Follows() {
		followed = l.rules
	}
	l.access.WatchFiles(l.metrics, followed)
	l.spans.watch(l.metrics)
}

// SetRules puts other rules in force. Calls under way finish by the rules that they began with.
// A limit whose counter was not kept before says that it is incomplete until its window has
// passed. With [WithReload] the next good version of the file takes over again.
func (l *Limiter) SetRules(rules Rules) error {
	if rules.parsed == nil {
		return errNoRules
	}
	l.rules.Set(rules.parsed)
	return nil
}

// Close ends Serve, waits for the operations of the store that are under way, and joins all
// goroutines. Calls that come later fail with ErrClosed. Close may be called again.
func (l *Limiter) Close() error {
	l.life.end(func() (err error) {
		if l.access != nil {
			l.access.Close()
		}
		if l.backend != nil {
			err = l.backend.Close()
		}
		l.spans.close(l.settings.Log)
		l.rules.Close()
		return err
	})
	return l.life.err
}
