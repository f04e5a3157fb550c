// Package assembly puts the parts of a limiter together: its store and engines, the limiter and the counters on them, and
// the records of its decisions. The root package and package server are built on it.
package assembly

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/backend"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/eventlog/footprint"
	"github.com/counterd/counterd/internal/insight/denied"
	"github.com/counterd/counterd/internal/insight/top"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/overrides"
	"github.com/counterd/counterd/internal/seal"
	"github.com/counterd/counterd/internal/service"
	"github.com/counterd/counterd/internal/settings"
	"github.com/counterd/counterd/internal/sparse"
	"github.com/counterd/counterd/internal/telemetry"
	"github.com/counterd/counterd/memcache"
)

// Hooks are called as a limiter works, by many goroutines at a time. They must not panic. A nil hook is not called.
type Hooks struct {
	OnDecision   func(context.Context, limiter.Hit, *events.Decision, limiter.Call)
	OnRoundTrip  func(context.Context, memcache.RoundTrip)
	OnStoreError func(error) // in a decision
}

// RulesInForce are the rules in force, without overrides. They are safe for concurrent use.
type RulesInForce struct {
	Now        func() time.Time // used by Set
	rules      atomic.Pointer[events.Rules]
	replacing  sync.Mutex // held while rules is replaced
	generation atomic.Int64
}

// NewRules returns a RulesInForce that holds first.
func NewRules(first *events.Rules) *RulesInForce {
	r := &RulesInForce{Now: time.Now}
	r.rules.Store(first)
	r.generation.Store(1)
	return r
}

// Rules returns the rules in force. They do not change: a caller that uses one result works
// with one version.
func (r *RulesInForce) Rules() *events.Rules { return r.rules.Load() }

// Generation returns the number of the rules in force; the first have 1.
func (r *RulesInForce) Generation() int64 { return r.generation.Load() }

// Set puts other rules in force and returns their generation.
func (r *RulesInForce) Set(rules *events.Rules) int64 {
	r.replacing.Lock()
	defer r.replacing.Unlock()
	r.rules.Store(events.Succeed(r.rules.Load(), rules, r.Now().Unix()))
	return r.generation.Add(1)
}

// Config sets up the parts. Settings and Rules are required. Settings must be valid.
type Config struct {
	Settings settings.Settings
	Rules    *RulesInForce
	// Domains returns the rules of Envoy's configuration, whose hits consist of several parts. Their windows may have
	// any length. Domains may be nil.
	Domains func() *events.Rules
	// Unsealed disables reservations, because clients with different rights could alter each other's.
	Unsealed bool
	// StartSpan begins the span of each decision, and OnCoalesced gets the contexts of hits that share round trips: see
	// limiter.Config. Both may be nil.
	StartSpan   telemetry.Start
	OnCoalesced func(hit, trips context.Context, hits int)
	Hooks       []Hooks
}

// Parts are the parts of an open limiter. They are safe for concurrent use.
type Parts struct {
	Settings  settings.Settings
	Rules     *RulesInForce
	Service   *service.Service
	Limiter   *limiter.Limiter
	Counters  *counting.Counters
	Buckets   *hierarchy.Counters
	Denied    *denied.History
	Overrides *overrides.Set
	Top       *top.Top
	Backend   *backend.Backend

	config Config
	united atomic.Pointer[united]
	hooks  atomic.Pointer[[]Hooks] // of the config, and those of Observe
}

// CheckRules returns an error for rules that a limiter of the config cannot keep.
func (c *Config) CheckRules(rules *events.Rules) error {
	if err := rules.CheckValues(); err != nil {
		return err
	}
	if rules.HasLeases() && c.Unsealed {
		return &settings.Fault{Setting: "tokens", Reason: "concurrency limits need {key-secret}, too: a client could alter the reservations of others"}
	}
	return footprint.CheckRules(rules, c.Settings.Grace)
}

// Open opens the parts.
func Open(c Config) (*Parts, error) {
	if err := c.CheckRules(c.Rules.Rules()); err != nil {
		return nil, err
	}
	p := &Parts{Settings: c.Settings, Rules: c.Rules, Top: top.New(top.Config{Clock: c.Settings.Clock}), config: c}
	p.hooks.Store(&c.Hooks)
	if err := p.open(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// open opens the parts, each on those opened before it.
func (p *Parts) open() (err error) {
	s, c := p.Settings, p.config
	if p.Backend, err = backend.Open(s.Start, s, backend.Config{Retention: p.longest, OnRoundTrip: p.onRoundTrip}); err != nil {
		return err
	}
	secret, err := backend.ReadKeySecret(s)
	if err != nil {
		return err
	}
	p.startOverrides(secret)
	p.Buckets = hierarchy.NewCounters(hierarchy.Config{Store: p.Backend.Store, Clock: s.Clock, Grace: s.Grace, OnUse: p.Backend.OnUse})
	p.startDenied()
	if err := p.newEngines(); err != nil {
		return err
	}
	p.Service, err = service.New(service.Config{
		Rules: p.Overrides.Rules, Limiter: p.Limiter, Counters: p.Counters, StartSpan: c.StartSpan,
		Seal: p.seal(secret), Unsealed: c.Unsealed, Overrides: p.Overrides, Top: p.Top,
	})
	return err
}

// Parts returns p, which is a limiter for packages api, page and metrics.
func (p *Parts) Parts() *Parts { return p }

// Observe adds hooks for decisions, round trips and failures of the store.
func (p *Parts) Observe(h Hooks) {
	for {
		before := p.hooks.Load()
		after := append(slices.Clip(*before), h)
		if p.hooks.CompareAndSwap(before, &after) {
			return
		}
	}
}

func (p *Parts) onRoundTrip(ctx context.Context, trip memcache.RoundTrip) {
	for _, h := range *p.hooks.Load() {
		if h.OnRoundTrip != nil {
			h.OnRoundTrip(ctx, trip)
		}
	}
}

func (p *Parts) onDecision(ctx context.Context, h limiter.Hit, d *events.Decision, call limiter.Call) {
	for _, hooks := range *p.hooks.Load() {
		if hooks.OnDecision != nil {
			hooks.OnDecision(ctx, h, d, call)
		}
	}
	p.Top.OnDecision(ctx, h, d, call)
	p.Denied.OnDecision(ctx, h, d, call)
}

// newEngines sets the limiter and the counters, on buckets and on logs. Failures of the store are
// logged at most once a second for each cause.
func (p *Parts) newEngines() error {
	engines, counted, err := enginesOn(p.Buckets)
	if err != nil {
		return err
	}
	local, _, err := enginesOn(hierarchy.NewCounters(hierarchy.Config{
		Store: backend.NewEmbedded(p.Settings.Log), Clock: p.Settings.Clock, Grace: p.Settings.Grace, CacheBytes: -1,
	}))
	if err != nil {
		return err
	}
	warn := p.warnOf("store failed in a decision")
	p.Limiter, err = limiter.New(limiter.Config{
		Local:       local,
		Timeout:     p.Settings.Timeout,
		MaxPending:  p.Settings.MaxPending,
		OnDecision:  p.onDecision,
		OnCoalesced: p.config.OnCoalesced,
		OnStoreError: func(err error) {
			for _, h := range *p.hooks.Load() {
				if h.OnStoreError != nil {
					h.OnStoreError(err)
				}
			}
			warn(err)
		},
	}, engines...)
	p.Counters = counting.New(counting.Config{MaxPending: p.Settings.MaxPending}, counted[0], counted[1:]...)
	return err
}

// enginesOn returns the engines on the store of the buckets. Reservations name an engine by its place.
func enginesOn(buckets *hierarchy.Counters) ([]limiter.Engine, []counting.Engine, error) {
	logs, err := eventlog.New(buckets.Base())
	if err != nil {
		return nil, nil, err
	}
	leases, err := eventlog.NewLeases(buckets.Base())
	if err != nil {
		return nil, nil, err
	}
	return []limiter.Engine{buckets, logs, leases}, []counting.Engine{buckets, logs, leases}, nil
}

// warnOf returns a function that logs an error at most once a second for each cause.
func (p *Parts) warnOf(text string) func(error) {
	var failures sparse.Lines
	return func(err error) {
		failures.Do(sparse.CauseOf(err), func(suppressed int64) {
			p.Settings.Log.Warn(text, "error", err, "suppressed", suppressed)
		})
	}
}

// startDenied starts the history of denied hits. Its calls do not count toward MaxPending.
func (p *Parts) startDenied() {
	p.Denied = denied.Start(denied.Config{
		Rules: p.ruled, Counters: counting.New(counting.Config{}, p.Buckets), Clock: p.Settings.Clock,
		OnStoreError: p.warnOf("denied hits are missing in their history"),
	})
}

// startOverrides starts the temporary overrides, which the processes with the key secret share.
func (p *Parts) startOverrides(secret []byte) {
	config := overrides.Config{
		Store: p.Backend.Store, Alone: !p.Backend.HasServers(), Rules: p.ruled, Suits: p.config.CheckRules,
		Clock: p.Settings.Clock,
		OnError: func(err error) {
			p.Settings.Log.Warn("the temporary overrides cannot be read, or not be written", "error", err)
		},
	}
	if secret != nil {
		config.Seal = seal.KeyOf(secret, "counterd: overrides")
	}
	p.Overrides = overrides.Start(p.Settings.Start, config)
}

// seal returns the key that seals reservations. Without a key secret, an embedded limiter gets a random key, and others
// get nil.
func (p *Parts) seal(secret []byte) []byte {
	switch {
	case secret == nil && !p.Settings.Embedded():
		return nil
	case secret == nil:
		secret = []byte(rand.Text())
	}
	return service.SealOf(secret)
}

// SetRules puts other rules in force. It returns an error, and changes nothing, if the limiter cannot enforce them or is
// closed.
func (p *Parts) SetRules(rules *events.Rules) error {
	if p.Service.Closed() {
		return service.ErrClosed
	}
	if err := p.config.CheckRules(rules); err != nil {
		return err
	}
	p.Rules.Set(rules)
	return nil
}

// AllRules returns all rules in force, with overrides.
func (p *Parts) AllRules() []*events.Rules { return []*events.Rules{p.Overrides.Rules()} }

// united are rules with the events of domains.
type united struct{ rules, domains, both *events.Rules }

// ruled returns the rules in force with the events of domains, without overrides. While neither changes, the result is
// the same.
func (p *Parts) ruled() *events.Rules {
	rules := p.Rules.Rules()
	if p.config.Domains == nil {
		return rules
	}
	domains := p.config.Domains()
	if u := p.united.Load(); u != nil && u.rules == rules && u.domains == domains {
		return u.both
	}
	both := *rules
	both.Events = maps.Clone(domains.Events)
	if both.Events == nil {
		both.Events = map[string]*events.Event{}
	}
	maps.Copy(both.Events, rules.Events)
	p.united.Store(&united{rules, domains, &both})
	return &both
}

// longest returns the longest retention of all counters, those of denied hits among them.
func (p *Parts) longest() time.Duration {
	longest := max(denied.MinRetention, p.Rules.Rules().Longest()) // overrides change no window
	if p.config.Domains != nil {
		longest = max(longest, events.MaxWindow, p.config.Domains().Longest())
	}
	return longest
}

// Health returns the health of the store and of the clock. A closed limiter is draining.
func (p *Parts) Health() service.Health {
	if p.Backend == nil {
		return service.Health{}
	}
	return service.Health{Servers: p.Backend.States(), Clock: p.Backend.Clock, Drain: p.Service.Closed}
}

// Close waits for the calls under way, at most for the timeout of the store, and joins all goroutines.
func (p *Parts) Close() error {
	if p.Service != nil {
		p.Service.Close(p.Settings.Timeout)
	}
	if p.Denied != nil {
		p.Denied.Close()
	}
	if p.Overrides != nil {
		p.Overrides.Close()
	}
	if p.Backend == nil {
		return nil
	}
	return p.Backend.Close()
}
