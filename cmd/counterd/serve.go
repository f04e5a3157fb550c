package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/sparse"
	"github.com/counterd/counterd/memcache"
	"github.com/counterd/counterd/memcache/discovery"
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

	cache := hierarchy.NewBucketCache(0)
	limiter, err := newLimiter(s, store, cache, log)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.listen)
	if err != nil {
		return err
	}
	counters := hierarchy.NewCounters(hierarchy.Config{Store: store.Store, Grace: s.grace, MaxPending: s.pending, Cache: cache})
	bounded := api.NewListener(listener, connections(s.conns, store, log))
	server := api.NewServer(api.NewHandler(api.Config{
		Rules:    rules.Rules,
		Counters: counters,
		Limiter:  limiter,
		Servers:  store.servers(),
		Metrics:  newMetrics(rules, store.health, limiter, counters, bounded),
		Log:      log,
	}), log)
	log.Info("serving", "address", listener.Addr().String(), "events", len(rules.Rules().Events))
	return serveUntil(ctx, server, bounded, log)
}

// connections returns how many connections to take: as many as is said, and as the
// system has files for.
func connections(wanted int, store store, log *slog.Logger) int {
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
	ownFiles       = 64 // what the process needs besides connections
	filesPerServer = 68 // connections to a Memcached server
)

// newLimiter returns the limiter on the store. Where rules want that, and the store
// fails, it decides on counters in this process. What failed is logged at most
// once a second for each cause.
func newLimiter(s settings, store store, cache *hierarchy.BucketCache, log *slog.Logger) (*hierarchy.Limiter, error) {
	var failures sparse.Lines
	return hierarchy.NewLimiter(hierarchy.LimiterConfig{
		Store:   store.Store,
		Local:   newEmbedded(log),
		Grace:   s.grace,
		Timeout: s.timeout,
		Cache:   cache,

		MaxPending: s.pending,
		Report: func(err error) {
			failures.Do(sparse.CauseOf(err), func(suppressed int64) {
				log.Warn("store failed in a decision", "error", err, "suppressed", suppressed)
			})
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
	health func() []memcache.ServerHealth // nil: it has no servers
	close  func() error
}

// openStore returns the store that the settings name.
func openStore(ctx context.Context, s settings, log *slog.Logger) (store, error) {
	if s.memcached.none() {
		log.Info("embedded store: counts are seen by this process alone and are lost when it stops; -memcached shares and keeps them",
			"max_bytes", memcache.DefaultMaxBytes)
		return store{Store: newEmbedded(log), close: func() error { return nil }}, nil
	}
	servers, source, err := s.memcached.find(ctx, func(err error) {
		log.Warn("no memcached server is found yet", "from", s.memcached.place(), "error", err)
	})
	if err != nil {
		return store{}, err
	}
	fleet, err := openFleet(ctx, s, servers, log)
	if err != nil {
		return store{}, err
	}
	if _, fixed := source.(discovery.Static); fixed {
		return store{fleet, fleet.Health, fleet.Close}, nil
	}
	log.Info("the memcached servers are followed", "from", s.memcached.place())
	follower := followServers(source, s.memcached.place(), servers, fleet.SetServers, log)
	return store{fleet, fleet.Health, func() error {
		follower.Close()
		return fleet.Close()
	}}, nil
}

// openFleet returns the fleet of the servers that were found.
func openFleet(ctx context.Context, s settings, servers []string, log *slog.Logger) (*memcache.Fleet, error) {
	config := memcache.Config{
		Servers: servers, Replicas: s.replicas, Timeout: s.timeout, Protocol: s.protocol,
		Learned: func(server string, speaks memcache.Protocol) {
			log.Info("a memcached server was asked how it speaks", "server", server, "speaks", speaks.String())
		},
		Changed: changesTo(log),
	}
	s.security.apply(&config)
	s.security.warn(servers, log)
	fleet, err := memcache.NewFleet(ctx, config)
	if err != nil {
		return nil, err
	}
	for server, err := range fleet.Ping(ctx) {
		if err != nil {
			log.Warn("a memcached server cannot be reached", "server", server, "error", err)
		}
	}
	log.Info("memcached store", "servers", strings.Join(servers, ","), "replicas", s.replicas, "protocol", s.protocol.String(), "tls", s.security.tls, "timeout", s.timeout)
	return fleet, nil
}
