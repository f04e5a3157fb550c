// Package settings holds what can be set of a limiter: the defaults, and the rules that
// settings keep. The options of the root package and the flags of the command write to the same
// Settings, so every default and every rule exists once. Package server has the settings of serving.
package settings

import (
	"context"
	"log/slog"
	"time"

	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/memcache"
)

// Settings are the settings of one limiter. The name of each in errors is the command's flag
// without its dash.
type Settings struct {
	Memcached     []string // servers, or one source of them; see ParseServers
	MemcachedFile string   // a file of servers, instead of Memcached

	MemcachedTLS        bool
	MemcachedCA         string // a file in PEM
	MemcachedCert       string // a file in PEM
	MemcachedKey        string // a file in PEM
	MemcachedServerName string
	MemcachedAuth       string // a file whose first line is user:password
	KeySecret           string // a file whose first line is the secret
	Protocol            memcache.Protocol
	Replicas            int

	Timeout    time.Duration
	Grace      time.Duration
	MaxPending int

	Log   *slog.Logger
	Start context.Context  // bounds the start
	Clock func() time.Time // nil: time.Now

	Invalid []error // values that an option could not read
}

// Default returns the settings of a limiter that sets nothing.
func Default() Settings {
	return Settings{
		Protocol:   memcache.Auto,
		Replicas:   1,
		Timeout:    memcache.DefaultTimeout,
		Grace:      hierarchy.DefaultGrace,
		MaxPending: engine.DefaultMaxPending,
		Log:        slog.Default(),
		Start:      context.Background(),
	}
}

// Embedded reports whether counters are kept in the process: no server is named.
func (s *Settings) Embedded() bool { return s.MemcachedFile == "" && len(s.Memcached) == 0 }
