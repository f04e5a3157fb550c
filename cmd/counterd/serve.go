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
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
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
	rules, err := readRules(s.rules)
	if err != nil {
		return err
	}
	store, err := openStore(ctx, s, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.close()) }()

	listener, err := net.Listen("tcp", s.listen)
	if err != nil {
		return err
	}
	server := api.NewServer(api.NewHandler(api.Config{
		Rules:    func() *events.Rules { return rules },
		Counters: hierarchy.NewCounters(hierarchy.Config{Store: store, Grace: s.grace}),
		Ping:     store.ping,
		Log:      log,
	}), log)
	log.Info("serving", "address", listener.Addr().String(), "events", len(rules.Events))
	return serveUntil(ctx, server, listener, log)
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
	ping  func(context.Context) map[string]error // nil: always there
	close func() error
}

// openStore returns the store that the settings name.
func openStore(ctx context.Context, s settings, log *slog.Logger) (store, error) {
	if len(s.memcached) == 0 {
		log.Info("embedded store: counts are seen by this process alone and are lost when it stops; -memcached shares and keeps them",
			"max_bytes", memcache.DefaultMaxBytes)
		return store{Store: memcache.NewEmbedded(memcache.EmbeddedConfig{}), close: func() error { return nil }}, nil
	}
	fleet, err := memcache.NewFleet(ctx, memcache.Config{Servers: s.memcached, Timeout: s.timeout})
	if err != nil {
		return store{}, err
	}
	for server, err := range fleet.Ping(ctx) {
		if err != nil {
			log.Warn("a memcached server cannot be reached", "server", server, "error", err)
		}
	}
	log.Info("memcached store", "servers", s.memcached.String(), "timeout", s.timeout)
	return store{fleet, fleet.Ping, fleet.Close}, nil
}
