package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/sparse"
	"github.com/counterd/counterd/memcache"
)

// drainTimeout is how long requests in flight may take after the signal to stop.
const drainTimeout = 15 * time.Second

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
	store, err := openStore(ctx, s, log)
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
	limiter, err := newLimiter(s, store, cache, mender, log)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.listen)
	if err != nil {
		return err
	}
	server := api.NewServer(api.NewHandler(api.Config{
		Rules:    rules.Rules,
		Counters: hierarchy.NewCounters(hierarchy.Config{Store: store, Grace: s.grace, Cache: cache, Mender: mender}),
		Limiter:  limiter,
		Ping:     store.ping,
		Metrics:  newMetrics(rules),
		Log:      log,
	}), log)
	log.Info("serving", "address", listener.Addr().String(), "events", len(rules.Rules().Events))
	return serveUntil(ctx, server, listener, log)
}

// newLimiter returns the limiter on the store. Where rules want that, and the store
// fails, it decides on counters in this process. What failed is logged at most
// once a second for each cause.
func newLimiter(s settings, store store, cache *hierarchy.BucketCache, mender *hierarchy.Mender, log *slog.Logger) (*hierarchy.Limiter, error) {
	var failures sparse.Lines
	return hierarchy.NewLimiter(hierarchy.LimiterConfig{
		Store:   store.Store,
		Local:   newEmbedded(log),
		Grace:   s.grace,
		Timeout: s.timeout,
		Cache:   cache,
		Mender:  mender,
		Report: func(err error) {
			failures.Do(sparse.CauseOf(err), func(suppressed int64) {
				log.Warn("store failed in a decision", "error", err, "suppressed", suppressed)
			})
		},
	})
}

// newMender returns the mender of the store's copies, nil where each counter has one
// alone. What went wrong is logged at most once a second for each cause.
func newMender(s settings, store store, log *slog.Logger) (*hierarchy.Mender, error) {
	if store.copies == nil {
		return nil, nil
	}
	var failures sparse.Lines
	return hierarchy.NewMender(hierarchy.MenderConfig{
		Store: store.copies,
		Grace: s.grace,
		Report: func(err error) {
			failures.Do(sparse.CauseOf(err), func(suppressed int64) {
				log.Warn("the copies of a counter are mended later", "error", err, "suppressed", suppressed)
			})
		},
		Began: func(counters int) {
			log.Info("a server may have missed something: the copies of all counters are compared", "counters", counters)
		},
		Finished: func(walk hierarchy.Walk) {
			log.Info("the copies of all counters were compared",
				"counters", walk.Counters, "raised", walk.Raised, "left", walk.Failed, "took", walk.Took.Round(time.Millisecond))
		},
	})
}

// newEmbedded returns a store in this process. That it forgets counters for want of
// memory is logged at most once a second.
func newEmbedded(log *slog.Logger) *memcache.Embedded {
	var evictions sparse.Lines
	return memcache.NewEmbedded(memcache.EmbeddedConfig{Report: func(evicted int64) {
		evictions.Do("", func(int64) {
			log.Warn("the embedded store is full: the counters not used for longest are forgotten, and begin again from zero",
				"evicted", evicted, "max_bytes", memcache.DefaultMaxBytes)
		})
	}})
}

// serveUntil serves until the context ends, and then lets the requests in flight
// finish.
func serveUntil(ctx context.Context, server *http.Server, listener net.Listener, log *slog.Logger) error {
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	log.Info("stopping: requests in flight are finished", "longest", drainTimeout)
	// Who asks on a kept connection until the end is told to ask elsewhere.
	server.SetKeepAlivesEnabled(false)
	drain, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	if err := server.Shutdown(drain); err != nil {
		server.Close()
		return fmt.Errorf("requests were still in flight after %s: %w", drainTimeout, err)
	}
	log.Info("stopped")
	return nil
}

// store is a hierarchy.Store with what the process around it needs.
type store struct {
	hierarchy.Store
	copies hierarchy.Mendable                     // nil: there are none
	ping   func(context.Context) map[string]error // nil: always there
	close  func() error
}

// openStore returns the store that the settings name.
func openStore(ctx context.Context, s settings, log *slog.Logger) (store, error) {
	if len(s.memcached) == 0 {
		log.Info("embedded store: counts are seen by this process alone and are lost when it stops; -memcached shares and keeps them",
			"max_bytes", memcache.DefaultMaxBytes)
		return store{Store: newEmbedded(log), close: func() error { return nil }}, nil
	}
	fleet, err := memcache.NewFleet(ctx, memcache.Config{
		Servers: s.memcached, Replicas: s.replicas, Timeout: s.timeout, Protocol: s.protocol,
		Learned: func(server string, speaks memcache.Protocol) {
			log.Info("a memcached server was asked how it speaks", "server", server, "speaks", speaks.String())
		},
	})
	if err != nil {
		return store{}, err
	}
	for server, err := range fleet.Ping(ctx) {
		if err != nil {
			log.Warn("a memcached server cannot be reached", "server", server, "error", err)
		}
	}
	log.Info("memcached store", "servers", s.memcached.String(), "replicas", s.replicas, "protocol", s.protocol.String(), "timeout", s.timeout)
	opened := store{Store: fleet, ping: fleet.Ping, close: fleet.Close}
	if s.replicas > 1 {
		opened.copies = fleet
	}
	return opened, nil
}
