package counterd

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/backend"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/follow"
	"github.com/counterd/counterd/internal/insight/denied"
	"github.com/counterd/counterd/internal/insight/peers"
	"github.com/counterd/counterd/internal/insight/top"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/overrides"
	"github.com/counterd/counterd/internal/seal"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/serving"
	"github.com/counterd/counterd/internal/settings"
	"github.com/counterd/counterd/internal/sparse"
	"github.com/counterd/counterd/internal/telemetry/tracing"
	"github.com/counterd/counterd/memcache"
	"github.com/counterd/counterd/metrics"
)

// Limiter decides hits and counts events. It is safe for concurrent use, and one serves a whole
// program. Close ends it.
type Limiter struct {
	process
	served atomic.Bool
}

// process is what a Limiter works with.
type process struct {
	settings settings.Settings
	rules    *follow.Rules
	domains  *follow.RLSConfig // nil: there is none
	spans    spans
	backend  *backend.Backend
	denied   *denied.History
	over     *overrides.Set // the temporary overrides
	access   *serving.Access
	service  *service.Service
	metrics  *metrics.Metrics
	top      *top.Top
	peers    *peers.Fleet
	handler  http.Handler
	life     *life
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
	l := &Limiter{process: process{settings: s, metrics: metrics.New(), top: top.New(top.Config{Clock: s.Clock}), peers: peers.New(s.Peers), life: newLife()}}
	if err := l.suits(rules.parsed); err != nil {
		return nil, err
	}
	if err := l.open(rules); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// open opens the parts, each on what is opened before it.
func (p *process) open(rules Rules) (err error) {
	s := p.settings
	if !s.Follow {
		rules.file = follow.RulesFile{}
	}
	p.rules = follow.NewRules(rules.parsed, rules.file, p.suits, s.Log)
	if s.RLSConfig != "" {
		if p.domains, err = follow.OpenRLSConfig(s.RLSConfig, s.Log); err != nil {
			return &settings.Fault{Setting: "rls-config", Cause: err}
		}
	}
	if p.spans, err = openSpans(s); err != nil {
		return err
	}
	if p.access, err = serving.OpenAccess(s); err != nil {
		return err
	}
	roundTrips := p.metrics.OnRoundTrip
	if p.spans.tracer != nil {
		roundTrips = both(p.metrics.OnRoundTrip, tracing.Trips(p.spans.tracer))
	}
	if p.backend, err = backend.Open(s.Start, s, backend.Config{Retention: p.longest, OnRoundTrip: roundTrips}); err != nil {
		return err
	}
	secret, err := backend.ReadKeySecret(s)
	if err != nil {
		return err
	}
	p.over = p.startOverrides(secret)
	buckets := hierarchy.NewCounters(hierarchy.Config{Store: p.backend.Store, Clock: s.Clock, Grace: s.Grace, OnUse: p.backend.OnUse})
	p.denied = p.startDenied(buckets)
	decider, counters, err := p.newEngines(buckets)
	if err != nil {
		return err
	}
	p.watch(metrics.Process{Limiter: decider, Counters: counters, Buckets: buckets, Denied: p.denied, Overrides: p.over})
	decides := service.Config{
		Rules: p.over.Rules, Limiter: decider, Counters: counters, Seal: p.seal(secret), Unsealed: s.Unsealed(),
		Overrides: p.over, Top: p.top,
	}
	if p.spans.tracer != nil {
		decides.StartSpan = tracing.Start(p.spans.tracer)
	}
	p.service, err = service.New(decides)
	if err != nil {
		return err
	}
	config := p.apiConfig()
	config.Gate = p.access.Gate(s.MaxConnections)
	p.handler = api.NewHandler(config)
	p.life.relay(s.Asks, p.rules.Ask, p.domains.Ask, p.backend.Ask, p.access.Ask)
	return nil
}

// newEngines returns what decides hits and what counts without deciding, on buckets and on logs.
func (p *process) newEngines(buckets *hierarchy.Counters) (*limiter.Limiter, *counting.Counters, error) {
	config := counting.Config{MaxPending: p.settings.MaxPending}
	logs, err := eventlog.New(buckets.Base())
	if err != nil {
		return nil, nil, err
	}
	leases, err := eventlog.NewLeases(buckets.Base())
	if err != nil {
		return nil, nil, err
	}
	// Reservations name an engine by its place.
	decider, err := p.newDecider(buckets, logs, leases)
	return decider, counting.New(config, buckets, logs, leases), err
}

// newDecider returns what decides hits on the engines. Failures of the store are logged at most
// once a second for each cause.
func (p *process) newDecider(engines ...engine.Engine) (*limiter.Limiter, error) {
	var failures sparse.Lines
	config := limiter.Config{
		Local:      backend.NewEmbedded(p.settings.Log),
		Timeout:    p.settings.Timeout,
		MaxPending: p.settings.MaxPending,
		OnDecision: func(ctx context.Context, h limiter.Hit, d *limiter.Decision, call limiter.Call) {
			p.metrics.OnDecision(ctx, h, d, call)
			p.top.OnDecision(ctx, h, d, call)
			p.denied.OnDecision(ctx, h, d, call)
		},
		OnStoreError: func(err error) {
			failures.Do(sparse.CauseOf(err), func(suppressed int64) {
				p.settings.Log.Warn("store failed in a decision", "error", err, "suppressed", suppressed)
			})
		},
	}
	if p.spans.tracer != nil {
		config.OnCoalesced = tracing.Together
	}
	return limiter.New(config, engines...)
}

// startDenied returns what counts denied hits, without a share in the calls of others that may wait for the store.
func (p *process) startDenied(buckets *hierarchy.Counters) *denied.History {
	var failures sparse.Lines
	return denied.Start(denied.Config{
		Rules: p.rules.Rules, Counters: counting.New(counting.Config{}, buckets), Clock: p.settings.Clock,
		OnStoreError: func(err error) {
			failures.Do(sparse.CauseOf(err), func(suppressed int64) {
				p.settings.Log.Warn("denied hits are missing in their history", "error", err, "suppressed", suppressed)
			})
		},
	})
}

// startOverrides returns the temporary overrides, which the processes with the key secret share.
func (p *process) startOverrides(secret []byte) *overrides.Set {
	config := overrides.Config{
		Store: p.backend.Store, Alone: !p.backend.HasServers(), Rules: p.rules.Rules, Suits: p.suits, Clock: p.settings.Clock,
		OnError: func(err error) {
			p.settings.Log.Warn("the temporary overrides cannot be read, or not be written", "error", err)
		},
	}
	if secret != nil {
		config.Seal = seal.KeyOf(secret, "counterd: overrides")
	}
	return overrides.Start(p.settings.Start, config)
}

// suits returns an error for rules that the limiter cannot keep.
func (p *process) suits(rules *events.Rules) error {
	if rules.HasLeases() && p.settings.Unsealed() {
		return &settings.Fault{Setting: "tokens", Reason: "concurrency limits need {key-secret}, too: a client could alter the reservations of others"}
	}
	return journal.CheckRules(rules, p.settings.Grace)
}

// seal returns what seals reservations: that of the key secret, or of this process, if its counters are its
// own; nil: there is none.
func (p *process) seal(secret []byte) []byte {
	switch {
	case secret == nil && !p.settings.Embedded():
		return nil
	case secret == nil:
		secret = []byte(rand.Text())
	}
	return service.SealOf(secret)
}

// both returns a hook that calls the one and then the other.
func both(one, other func(context.Context, memcache.RoundTrip)) func(context.Context, memcache.RoundTrip) {
	return func(ctx context.Context, trip memcache.RoundTrip) {
		one(ctx, trip)
		other(ctx, trip)
	}
}

// inForce returns the rules in force, those of the configured domains among them.
func (p *process) inForce() []*events.Rules {
	return []*events.Rules{p.over.Rules(), p.domains.Rules()}
}

// longest returns the longest retention of all counters, those of denied hits among them. With configured domains, descriptors bring limits of any window.
func (p *process) longest() (longest time.Duration) {
	longest = denied.MinRetention
	if p.domains != nil {
		longest = events.MaxWindow
	}
	for _, rules := range []*events.Rules{p.rules.Rules(), p.domains.Rules()} { // overrides change no window
		longest = max(longest, rules.Longest())
	}
	return longest
}

// watch adds all parts to the metrics, beside those of the process.
func (p *process) watch(process metrics.Process) {
	process.Rules, process.Generation, process.ReloadFailures = p.inForce, p.rules.Generation, p.rules.Failures
	p.backend.Watch(p.metrics, &process)
	p.metrics.Watch(process)
	p.access.Watch(p.metrics)
	files := map[string]serving.Refused{}
	if p.rules.Follows() {
		files["rules"] = p.rules
	}
	if p.domains != nil {
		files["rls-config"] = p.domains
	}
	p.access.WatchFiles(p.metrics, files)
	p.spans.watch(p.metrics)
}

// SetRules puts other rules in force. Calls under way finish by the rules that they began with.
// A limit whose counter was not kept before says that it is incomplete until its window has
// passed. Rules that the limiter cannot keep are an error, and change nothing. With [WithReload] the next good version of the file takes over again.
func (l *Limiter) SetRules(rules Rules) error {
	if rules.parsed == nil {
		return errNoRules
	}
	if err := l.suits(rules.parsed); err != nil {
		return err
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
		if l.denied != nil {
			l.denied.Close()
		}
		if l.over != nil {
			l.over.Close()
		}
		if l.backend != nil {
			err = l.backend.Close()
		}
		l.peers.Close()
		l.spans.close(l.settings.Log)
		l.domains.Close()
		l.rules.Close()
		return err
	})
	return l.life.err
}
