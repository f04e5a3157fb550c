package backend

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/counterd/counterd/internal/discovery"
	"github.com/counterd/counterd/internal/settings"
	"github.com/counterd/counterd/internal/sparse"
	"github.com/counterd/counterd/memcache"
)

// find returns the servers at the start, and their source. report gets each failure before they
// are found.
func find(ctx context.Context, s settings.Settings, report func(error)) ([]string, discovery.Source, error) {
	source, wait, err := s.Source()
	if err != nil {
		return nil, nil, err
	}
	if err := secureSource(s, source); err != nil {
		return nil, nil, err
	}
	if wait == 0 {
		servers, err := discovery.List(ctx, source)
		return servers, source, err
	}
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	servers, err := discovery.Await(bounded, source, report)
	switch {
	case ctx.Err() != nil:
		return nil, nil, fmt.Errorf("stopped before a memcached server was found: %w", ctx.Err())
	case err != nil:
		return nil, nil, fmt.Errorf("no memcached server was found within %s: %w", wait, err)
	}
	return servers, source, nil
}

// ServersOf returns the names of the servers that hold a counter, its first one first, and the
// secret of the keys.
func ServersOf(ctx context.Context, s settings.Settings, counter string) (servers []string, secret []byte, err error) {
	if secret, err = ReadKeySecret(s); err != nil || s.Embedded() {
		return nil, secret, err
	}
	found, _, err := find(ctx, s, func(error) {})
	if err != nil {
		return nil, nil, err
	}
	fleet, err := memcache.NewFleet(ctx, memcache.Config{Servers: found, Replicas: s.Replicas, KeySecret: secret})
	if err != nil {
		return nil, nil, err
	}
	return fleet.Servers(counter), secret, fleet.Close()
}

// followServers has set put in force what the source lists, until Close. A failure is logged at
// most once a second for each cause.
func followServers(source discovery.Source, name string, servers []string, set func(context.Context, []string) error, log *slog.Logger) *discovery.Follower {
	var failures sparse.Lines
	log = log.With("from", name)
	return discovery.Follow(discovery.Config{
		Source:  source,
		Servers: servers,
		Changed: func(ctx context.Context, change discovery.Change) error {
			if err := set(ctx, change.Servers); err != nil {
				return err
			}
			log.Info("the memcached servers have changed", "added", strings.Join(change.Added, ","),
				"removed", strings.Join(change.Removed, ","), "servers", strings.Join(change.Servers, ","))
			return nil
		},
		Unchanged: func(servers []string) {
			log.Info("the memcached servers found are those in force", "servers", strings.Join(servers, ","))
		},
		Report: func(err error) {
			failures.Do(sparse.CauseOf(err), func(suppressed int64) {
				log.Warn("looking for the memcached servers failed, those in force stay", "error", strings.ReplaceAll(err.Error(), "\n", "; "), "suppressed", suppressed)
			})
		},
	})
}
