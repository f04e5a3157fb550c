package main

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/sparse"
	"github.com/counterd/counterd/memcache"
	"github.com/counterd/counterd/memcache/discovery"
)

// store is a hierarchy.Store with what the process around it needs.
type store struct {
	hierarchy.Store
	health func() []memcache.ServerHealth // nil: it has no servers
	copies *memcache.Fleet                // nil: of each counter there is one alone
	follow *fleetFollower                 // nil: its servers are those of the start
	close  func() error
}

// openStore returns the store that the settings name. How long counters are remembered is
// how long it matters that a server has forgotten some.
func openStore(ctx context.Context, s settings, remembered func() time.Duration, tripped tripped, log *slog.Logger) (store, error) {
	if s.memcached.none() {
		log.Info("embedded store: counts are seen by this process alone and are lost when it stops; -memcached shares and keeps them",
			"max_bytes", memcache.DefaultMaxBytes)
		return store{Store: newEmbedded(log), close: func() error { return nil }}, nil
	}
	servers, source, err := s.memcached.find(ctx, s.security, func(err error) {
		log.Warn("no memcached server is found yet", "from", s.memcached.place(), "error", err)
	})
	if err != nil {
		return store{}, err
	}
	fleet, err := openFleet(ctx, s, servers, remembered, tripped, log)
	if err != nil {
		return store{}, err
	}
	opened := store{Store: fleet, health: fleet.Health, close: func() error {
		payDebts(fleet, log)
		return fleet.Close()
	}}
	if s.replicas > 1 {
		opened.copies = fleet
	}
	if _, fixed := source.(discovery.Static); fixed {
		return opened, nil
	}
	log.Info("the memcached servers are followed", "from", s.memcached.place())
	warnOfFew(servers, s.replicas, log)
	set := func(ctx context.Context, servers []string) error {
		if err := fleet.SetServers(ctx, servers); err != nil {
			return err
		}
		warnOfFew(servers, s.replicas, log)
		s.security.warn(servers, log)
		return nil
	}
	follower := followServers(source, s.memcached.place(), servers, set, log)
	opened.follow = follower
	closeFleet := opened.close
	opened.close = func() error {
		follower.Close()
		return closeFleet()
	}
	return opened, nil
}

// payTimeout is how long a process that stops goes on to make up for what it owes to
// copies.
const payTimeout = 3 * time.Second

// payDebts gives copies that missed adds of this process the time to get them: nobody else
// knows of those.
func payDebts(fleet *memcache.Fleet, log *slog.Logger) {
	adds, servers := fleet.PendingHints()
	for end := time.Now().Add(payTimeout); adds > 0 && time.Now().Before(end); adds, servers = fleet.PendingHints() {
		time.Sleep(10 * time.Millisecond)
	}
	if adds > 0 {
		log.Warn("copies that are away will lack adds of this process, until counters are used again and mended", "adds", adds, "servers", servers)
	}
}

// warnOfFew says that there are not as many copies as are wanted.
func warnOfFew(servers []string, replicas int, log *slog.Logger) {
	if len(servers) < replicas {
		log.Warn("there are fewer memcached servers than copies are wanted", "servers", len(servers), "replicas", replicas)
	}
}

// openFleet returns the fleet of the servers that were found.
func openFleet(ctx context.Context, s settings, servers []string, remembered func() time.Duration, tripped tripped, log *slog.Logger) (*memcache.Fleet, error) {
	config := memcache.Config{
		Servers: servers, Replicas: s.replicas, Timeout: s.timeout, Protocol: s.protocol,
		OnProtocol: func(server string, speaks memcache.Protocol) {
			log.Info("a memcached server was asked how it speaks", "server", server, "speaks", speaks.String())
		},
		OnServerChange: changesTo(log, s.replicas),
		// Clocks may be behind and ahead by the grace: windows reach as much further back.
		Retention:   func() time.Duration { return remembered() + 2*s.grace },
		OnRoundTrip: tripped,
	}
	if err := s.security.checkSecrets(); err != nil {
		return nil, err
	}
	s.security.apply(&config)
	s.security.warn(servers, log)
	s.keySecret.warn(log)
	var err error
	if config.KeySecret, err = s.keySecret.read(); err != nil {
		return nil, err
	}
	fleet, err := memcache.NewFleet(ctx, config)
	if err != nil {
		return nil, err
	}
	for server, err := range fleet.Ping(ctx) {
		if err != nil {
			log.Warn("a memcached server cannot be reached", "server", server, "error", err)
		}
	}
	log.Info("memcached store", "servers", strings.Join(servers, ","), "replicas", s.replicas, "protocol", s.protocol.String(), "tls", s.security.tls, "key_secret", s.keySecret.file != "", "timeout", s.timeout)
	return fleet, nil
}

// newMender returns the mender of the store's copies, nil where each counter has one
// alone. What went wrong is logged at most once a second for each cause.
func newMender(s settings, store store, log *slog.Logger) (*hierarchy.Repairer, error) {
	if store.copies == nil {
		return nil, nil
	}
	var failures sparse.Lines
	return hierarchy.NewRepairer(hierarchy.RepairerConfig{
		Store: store.copies,
		Grace: s.grace,
		OnRepaired: func(gaps uint64) {
			store.copies.Mended(gaps)
			warnOfLosses(store.copies.Health(), log)
		},
		OnError: func(err error) {
			failures.Do(sparse.CauseOf(err), func(suppressed int64) {
				log.Warn("the copies of a counter are mended later", "error", err, "suppressed", suppressed)
			})
		},
		OnPassStart: func(counters int) {
			log.Info("a server may have missed something: the copies of all counters are compared", "counters", counters)
		},
		OnPassEnd: func(walk hierarchy.RepairPass) {
			log.Info("the copies of all counters were compared",
				"counters", walk.Counters, "raised", walk.Raised, "left", walk.Failed, "took", walk.Took.Round(time.Millisecond))
		},
	})
}

// warnOfLosses names the servers that a repair has not made whole again.
func warnOfLosses(servers []memcache.ServerHealth, log *slog.Logger) {
	for _, h := range servers {
		if h.Since != 0 && !h.Evicting {
			log.Warn("a memcached server may still lack counts after the repair: this process did not know all counters when they were lost, or too many servers lost theirs at once; limits are incomplete until their windows have passed",
				"server", h.Name, "since", secondOf(h.Since))
		}
	}
}

// newEmbedded returns a store in this process. That it forgets counters for want of
// memory is logged at most once a second.
func newEmbedded(log *slog.Logger) *memcache.Embedded {
	var evictions sparse.Lines
	return memcache.NewEmbedded(memcache.EmbeddedConfig{OnEvict: func(evicted int64) {
		evictions.Do("", func(int64) {
			log.Warn("the embedded store is full: the counters not used for longest are forgotten, and begin again from zero",
				"evicted", evicted, "max_bytes", memcache.DefaultMaxBytes)
		})
	}})
}
