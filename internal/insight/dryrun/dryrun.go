// Package dryrun decides hits of the past as rules would have decided them: by the engine itself, a limiter.Limiter on
// an embedded store, whose clock is at the moment of each hit. No server takes part, and no time passes.
package dryrun

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/memcache"
)

const (
	// timeout is that of the limiter. No time passes while it decides, so it needs none; and
	// the shorter it is the sooner the limiter takes other hits for final: no other
	// process is there to roll them back.
	timeout = time.Nanosecond
	// cacheBytes is what the limiter remembers closed buckets in. It does so for a second,
	// and there is one hit after the other: more makes it no faster.
	cacheBytes = 512 << 10
)

var (
	// ErrMemory is returned if the counters do not fit into the memory that they may take.
	ErrMemory = errors.New("dryrun: the counters take too much memory")
	// ErrEngine is returned if the engine could not decide a hit. That is a fault of this program.
	ErrEngine = errors.New("dryrun: the engine failed")
)

// Engine decides one hit after the other. It is for one goroutine.
type Engine struct {
	now     time.Time
	bytes   int64
	hits    int64
	store   *memcache.Embedded
	limiter *limiter.Limiter
	failed  error // what the limiter reported
}

// New returns an Engine whose counters take at most so many bytes.
func New(maxBytes int64) (*Engine, error) {
	e := &Engine{bytes: maxBytes}
	clock := func() time.Time { return e.now }
	e.store = memcache.NewEmbedded(memcache.EmbeddedConfig{MaxBytes: maxBytes, Clock: clock})
	counters := hierarchy.NewCounters(hierarchy.Config{Store: patientStore{e.store}, Clock: clock, CacheBytes: cacheBytes})
	logs, err := eventlog.New(counters.Base())
	if err != nil {
		return nil, err
	}
	leases, err := eventlog.NewLeases(counters.Base())
	if err != nil {
		return nil, err
	}
	e.limiter, err = limiter.New(limiter.Config{
		Timeout: timeout, OnStoreError: func(err error) { e.failed = errors.Join(e.failed, err) },
	}, counters, logs, leases)
	return e, err
}

// Hit decides a hit at a moment, which is not before that of the hit before it. Of the limits that admit it above N the
// decision is exact. An error wraps one of this package, or is that of the context.
func (e *Engine) Hit(ctx context.Context, at time.Time, hit limiter.Hit) (events.Decision, error) {
	e.now = at.Truncate(time.Millisecond) // which logs go by in windows below a minute
	decision, err := e.limiter.Hit(ctx, hit)
	if err == nil {
		decision, err = e.exactly(ctx, hit, decision)
	}
	switch {
	case ctx.Err() != nil:
		return decision, ctx.Err()
	case err != nil || e.failed != nil:
		return decision, fmt.Errorf("%w: %w", ErrEngine, errors.Join(err, e.failed))
	case e.store.Evicted() > 0:
		return decision, fmt.Errorf("%w: more than %d MiB at %s, after %d hits", ErrMemory, e.bytes>>20, at.UTC().Format(time.RFC3339), e.hits)
	}
	e.hits++
	for i := range decision.Limits {
		if state := &decision.Limits[i]; state.Failed || state.Incomplete {
			return decision, fmt.Errorf("%w: it did not ask the limit %s", ErrEngine, state.Name)
		}
	}
	return decision, nil
}

// exactly returns the decision with what is above N: a count below the ceiling may be an upper
// bound, which is then taken for above N. A check is exact.
func (e *Engine) exactly(ctx context.Context, hit limiter.Hit, d events.Decision) (events.Decision, error) {
	if !d.Allowed || !slices.ContainsFunc(d.Limits, func(s events.LimitState) bool { return s.Over && !s.Exact }) {
		return d, nil
	}
	check, err := e.limiter.Check(ctx, hit)
	for i := range check.Limits {
		d.Limits[i].Over = d.Limits[i].Over && check.Limits[i].Count > d.Limits[i].Limit
	}
	return d, err
}

// patientStore is an embedded store that no deadline ends. Timeouts are of the real time,
// also where the clock is not, and a machine that is busy must not change a decision.
type patientStore struct{ *memcache.Embedded }

func (s patientStore) Do(ctx context.Context, ops ...*store.Op) {
	s.Embedded.Do(context.WithoutCancel(ctx), ops...)
}
