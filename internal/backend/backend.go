// Package backend opens the store of a counterd as its settings say: embedded, or a fleet of
// Memcached servers with the discovery of its servers, its security, its repair, and the log of
// what becomes of it.
package backend

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/discovery"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/replica/repair"
	"github.com/counterd/counterd/internal/settings"
	"github.com/counterd/counterd/internal/sparse"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/memcache"
)

// Backend is an open store.
type Backend struct {
	store.Store
	// OnUse is called with each counter in use; nil: there are no replicas to repair.
	OnUse func(id string, counter events.Counter, now time.Time)

	settings settings.Settings
	repairer *repair.Repairer    // nil: there are no replicas
	fleet    *memcache.Fleet     // nil: the store is embedded
	embedded *memcache.Embedded  // nil: it is not
	follower *discovery.Follower // nil: the servers are those of the start
	// retention is that of the Config; nil: it is not known.
	retention func() time.Duration
}

// Config is what a backend takes from its process.
type Config struct {
	// Retention returns how long counters are remembered: as long it matters that a server
	// has lost some.
	Retention   func() time.Duration
	OnRoundTrip func(context.Context, memcache.RoundTrip) // nil: none
}

// Open opens the store of valid settings. The context bounds the search for the first servers.
func Open(ctx context.Context, s settings.Settings, config Config) (*Backend, error) {
	if s.Embedded() {
		s.Log.Info("embedded store: counts are seen by this process alone and are lost when it stops; Memcached servers share and keep them",
			"max_bytes", memcache.DefaultMaxBytes)
		embedded := NewEmbedded(s.Log)
		return &Backend{Store: embedded, settings: s, embedded: embedded, retention: config.Retention}, nil
	}
	servers, source, err := find(ctx, s, func(err error) {
		s.Log.Warn("no memcached server is found yet", "from", s.SourceName(), "error", err)
	})
	if err != nil {
		return nil, err
	}
	fleet, err := openFleet(ctx, s, servers, config)
	if err != nil {
		return nil, err
	}
	b := &Backend{Store: fleet, settings: s, fleet: fleet}
	if _, fixed := source.(discovery.Static); !fixed {
		b.follow(source, servers)
	}
	if s.Replicas > 1 {
		layout := hierarchy.Layout{Grace: s.Grace}
		repairLog, err := logRepair(engine.Base{Store: fleet, Grace: s.Grace})
		if err == nil {
			b.repairer, err = newRepairer(s, fleet, layout, repairLog, config.Retention)
		}
		if err != nil {
			_ = b.Close() // nothing was counted
			return nil, err
		}
		b.OnUse = layout.OnUse(b.repairer.Note)
	}
	return b, nil
}

// follow keeps the servers as the source lists them.
func (b *Backend) follow(source discovery.Source, servers []string) {
	b.settings.Log.Info("the memcached servers are followed", "from", b.settings.SourceName())
	warnOfFew(servers, b.settings)
	b.follower = followServers(source, b.settings.SourceName(), servers, b.setServers, b.settings.Log)
}

func (b *Backend) setServers(ctx context.Context, servers []string) error {
	if err := b.fleet.SetServers(ctx, servers); err != nil {
		return err
	}
	warnOfFew(servers, b.settings)
	warnOfOpenPassword(b.settings, servers)
	return nil
}

// Ask has the source of the servers asked at once. It does not wait.
func (b *Backend) Ask() {
	if b.follower != nil {
		b.follower.Ask()
	}
}

// Health returns how the servers are; none for the embedded store. It makes no round trip.
func (b *Backend) Health() []memcache.ServerHealth {
	if b.fleet == nil {
		return nil
	}
	return b.fleet.Health()
}

// Fleet returns the fleet of servers, or nil if the store is embedded.
func (b *Backend) Fleet() *memcache.Fleet { return b.fleet }

// Embedded returns the embedded store, or nil.
func (b *Backend) Embedded() *memcache.Embedded { return b.embedded }

// Repairer returns what repairs the replicas, or nil if there are none.
func (b *Backend) Repairer() *repair.Repairer { return b.repairer }

// Follower returns what follows the source of the servers, or nil if they are those of the start.
func (b *Backend) Follower() *discovery.Follower { return b.follower }

// HasServers reports whether the store is a fleet of servers.
func (b *Backend) HasServers() bool { return b.fleet != nil }

// Close waits for the operations under way and closes the store.
func (b *Backend) Close() error {
	b.repairer.Close()
	if b.follower != nil {
		b.follower.Close()
	}
	if b.fleet == nil {
		return nil
	}
	replayHints(b.fleet, b.settings.Log)
	return b.fleet.Close()
}

// replayTimeout is how long a process that stops goes on to replay hints.
const replayTimeout = 3 * time.Second

// replayHints waits until replicas have got the adds of this process that they missed: no other
// process has hints of those.
func replayHints(fleet *memcache.Fleet, log *slog.Logger) {
	adds, servers := fleet.PendingHints()
	for end := time.Now().Add(replayTimeout); adds > 0 && time.Now().Before(end); adds, servers = fleet.PendingHints() {
		time.Sleep(10 * time.Millisecond)
	}
	if adds > 0 {
		log.Warn("replicas that are away lack adds of this process, until these are copied to them", "adds", adds, "servers", servers)
	}
}

// warnOfFew logs that there are fewer servers than replicas.
func warnOfFew(servers []string, s settings.Settings) {
	if len(servers) < s.Replicas {
		s.Log.Warn("there are fewer memcached servers than replicas", "servers", len(servers), "replicas", s.Replicas)
	}
}

// openFleet returns the fleet of the servers that were found.
func openFleet(ctx context.Context, s settings.Settings, servers []string, c Config) (*memcache.Fleet, error) {
	config := memcache.Config{
		Servers: servers, Replicas: s.Replicas, Timeout: s.Timeout, Protocol: s.Protocol,
		OnProtocol: func(server string, speaks memcache.Protocol) {
			s.Log.Info("the protocol of a memcached server is known", "server", server, "speaks", speaks.String())
		},
		OnServerChange: logChanges(s.Log, s.Replicas),
		// Clocks may be behind and ahead by the grace: windows reach as much further back.
		Retention:   func() time.Duration { return c.Retention() + 2*s.Grace },
		OnRoundTrip: c.OnRoundTrip,
		Clock:       s.Clock, Skew: s.Grace / 4, OnClockChange: logClock(s.Log),
	}
	if err := checkSecrets(s); err != nil {
		return nil, err
	}
	secure(s, &config)
	for _, file := range []string{s.MemcachedKey, s.MemcachedAuth, s.KeySecret} {
		settings.WarnOfMode(s.Log, file)
	}
	warnOfOpenPassword(s, servers)
	var err error
	if config.KeySecret, err = ReadKeySecret(s); err != nil {
		return nil, err
	}
	fleet, err := memcache.NewFleet(ctx, config)
	if err != nil {
		return nil, err
	}
	for server, err := range fleet.Ping(ctx) {
		if err != nil {
			s.Log.Warn("a memcached server cannot be reached", "server", server, "error", err)
		}
	}
	s.Log.Info("memcached store", "servers", strings.Join(servers, ","), "replicas", s.Replicas, "protocol", s.Protocol.String(), "tls", s.MemcachedTLS, "key_secret", s.KeySecret != "", "timeout", s.Timeout)
	return fleet, nil
}

// logRepair returns what repairs the logs of a counter: of its hits, and of its leases.
func logRepair(base engine.Base) (func(context.Context, string, time.Duration) (int, error), error) {
	logs, err := eventlog.New(base)
	if err != nil {
		return nil, err
	}
	leases, err := eventlog.NewLeases(base)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, id string, retention time.Duration) (int, error) {
		changed, err := logs.Repair(ctx, id, retention)
		if err != nil {
			return changed, err
		}
		more, err := leases.Repair(ctx, id, retention)
		return changed + more, err
	}, nil
}

// newRepairer returns the repairer of the fleet's replicas. Failures are logged at most once a
// second for each cause.
func newRepairer(s settings.Settings, fleet *memcache.Fleet, layout repair.Layout, repairLog func(context.Context, string, time.Duration) (int, error), retention func() time.Duration) (*repair.Repairer, error) {
	var failures sparse.Lines
	return repair.New(repair.Config{
		Store: fleet, Layout: layout, RepairLog: repairLog, Grace: s.Grace, Retention: retention,
		KindOf: KindOf,
		OnError: func(err error) {
			failures.Do(sparse.CauseOf(err), func(suppressed int64) {
				s.Log.Warn("replicas are repaired later", "error", err, "suppressed", suppressed)
			})
		},
		OnPassStart: func(counters int) {
			s.Log.Info("a server may have missed something, and one lists no keys: the replicas of the counters that this process has used are compared", "counters", counters)
		},
		OnPassEnd: func(pass repair.Pass) {
			s.Log.Info("the replicas of the counters that this process has used were compared",
				"counters", pass.Counters, "raised", pass.Raised, "left", pass.Failed, "took", pass.Took.Round(time.Millisecond))
		},
		OnCopyStart: func(to, from string) {
			s.Log.Info("what a memcached server lacks is copied to it", "server", to, "from", from)
		},
		OnCopyEnd: func(c repair.Copy) {
			s.Log.Info("what a memcached server lacked was copied to it",
				"server", c.To, "from", c.From, "items", c.Items, "raised", c.Raised, "took", c.Took.Round(time.Millisecond))
		},
	})
}

// KindOf returns how an item of the engines is copied to another server.
func KindOf(item uint64) repair.Kind {
	switch {
	case item == eventlog.Item() || item == eventlog.LeasesItem():
		return repair.Log
	case hierarchy.IsReceipt(item):
		return repair.Bytes
	case hierarchy.IsEpoch(item):
		return repair.Count
	case hierarchy.IsBucket(item):
		return repair.Bucket
	}
	return repair.Foreign
}

// NewEmbedded returns a store in this process. It logs at most once a second that counters were
// evicted because memory is full.
func NewEmbedded(log *slog.Logger) *memcache.Embedded {
	var evictions sparse.Lines
	return memcache.NewEmbedded(memcache.EmbeddedConfig{OnEvict: func(evicted int64) {
		evictions.Do("", func(int64) {
			log.Warn("the embedded store is full: the least recently used counters are evicted, and begin again from zero",
				"evicted", evicted, "max_bytes", memcache.DefaultMaxBytes)
		})
	}})
}
