package main

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/metrics"
	"github.com/counterd/counterd/internal/sparse"
	"github.com/counterd/counterd/memcache"
	"github.com/counterd/counterd/service"
)

// serve runs the server until the context ends.
func serve(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	s, err := parseServe(args, stdout)
	if err != nil {
		return err
	}
	log := newLog(s.log, stderr)
	rules, err := openRules(s.rules, log)
	if err != nil {
		return err
	}
	defer rules.Close()
	if s.tracing.spans, err = openSpans(ctx, s.tracing, log); err != nil {
		return err
	}
	defer s.tracing.spans.close()
	metrics := metrics.New()
	store, err := openStore(ctx, s, rules.remembered, both(metrics.OnRoundTrip, s.tracing.spans.tripped()), log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.close()) }()

	mender, err := newMender(s, store, log)
	if err != nil {
		return err
	}
	defer mender.Close()
	cache := hierarchy.NewBucketCache(0)
	limiter, err := newLimiter(s, store, cache, mender, metrics.OnDecision, log)
	if err != nil {
		return err
	}
	door, err := openDoor(s.access, log)
	if err != nil {
		return err
	}
	defer door.Close()
	s.access.warn(s.listen, log)
	most := maxConnections(s.conns, store, log)
	places, err := openPlaces(s, most, door, log)
	if err != nil {
		return err
	}
	counters := hierarchy.NewCounters(hierarchy.Config{Store: store.Store, Grace: s.grace, MaxPending: s.pending, Cache: cache, Repairer: mender})
	watch(metrics, rules, store, mender, limiter, counters, cache, places.clients.listener)
	watchDoor(metrics, door)
	watchFiles(metrics, rules, door)
	watchSpans(metrics, s.tracing.spans)
	watchServerList(metrics, s.memcached.kind(), store.follow)
	counting, err := service.New(service.Config{Rules: rules.Rules, Limiter: limiter, Counters: counters, Tracer: s.tracing.spans.tracer()})
	if err != nil {
		return err
	}
	places.handle(api.Config{
		Service:      counting,
		Health:       service.Health{Servers: store.servers(), Drain: door.draining.Load},
		Metrics:      metrics.Handler(),
		LoopbackOnly: door.loopbackOnly,
		OnRequest:    metrics.OnRequest,
		Log:          log,
		AccessLog:    s.tracing.accessLog,
		Tracer:       s.tracing.spans.tracer(),
	}, door, most)
	if places.admin != nil {
		log.Info("serving operators", "address", places.admin.listener.Addr().String())
	}
	log.Info("serving", "address", places.clients.listener.Addr().String(), "events", len(rules.Rules().Events))
	return places.serveUntil(ctx, s.access.drainDelay, &door.draining, log)
}

// maxConnections returns how many connections to take: as many as is said, and as the
// system has files for.
func maxConnections(wanted int, store store, log *slog.Logger) int {
	files := maxFiles()
	most := files - ownFiles
	if store.health != nil {
		most -= filesPerServer * len(store.health())
	}
	if wanted <= most {
		return wanted
	}
	most = max(most, 1)
	log.Warn("fewer connections are taken than -max-connections says: the process may not open as many files",
		"connections", most, "files", files)
	return most
}

const (
	ownFiles       = 64 + adminConnections // what the process needs besides connections of clients
	filesPerServer = 68                    // connections to a Memcached server
)

// decided is told of decisions, and tripped of trips.
type (
	decided = func(context.Context, hierarchy.Hit, *hierarchy.Decision, hierarchy.Call)
	tripped = func(context.Context, memcache.RoundTrip)
)

// both returns what tells the one of each trip and then the other, where there is another.
func both(one, other tripped) tripped {
	if other == nil {
		return one
	}
	return func(ctx context.Context, trip memcache.RoundTrip) {
		one(ctx, trip)
		other(ctx, trip)
	}
}

// newLimiter returns the limiter on the store. Where rules want that, and the store
// fails, it decides on counters in this process. What failed is logged at most
// once a second for each cause.
func newLimiter(s settings, store store, cache *hierarchy.BucketCache, mender *hierarchy.Repairer, decided decided, log *slog.Logger) (*hierarchy.Limiter, error) {
	var failures sparse.Lines
	return hierarchy.NewLimiter(hierarchy.LimiterConfig{
		Store:      store.Store,
		Local:      newEmbedded(log),
		Grace:      s.grace,
		Timeout:    s.timeout,
		Cache:      cache,
		Repairer:   mender,
		OnDecision: decided,

		MaxPending:  s.pending,
		OnCoalesced: s.tracing.spans.together(),
		OnStoreError: func(err error) {
			failures.Do(sparse.CauseOf(err), func(suppressed int64) {
				log.Warn("store failed in a decision", "error", err, "suppressed", suppressed)
			})
		},
	})
}
