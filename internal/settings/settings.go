// Package settings holds all that can be set of a counterd: the defaults, and the rules that
// settings keep. The options of the root package and the flags of the command write to the same
// Settings, so every default and every rule exists once.
package settings

import (
	"context"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/connections"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/memcache"
)

// OpenToAll is the value of Tokens by which an operator opens the interface to all callers.
const OpenToAll = "none"

// Settings are the settings of one counterd. The name of each in errors is the command's flag
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

	Listen         string
	Admin          string // an address; empty: operators use Listen
	MaxConnections int
	DrainDelay     time.Duration
	Peers          []string // URLs of the other processes of the fleet
	Tokens         string   // a file, or OpenToAll; empty: loopback only
	TLSCert        string   // a file in PEM
	TLSKey         string   // a file in PEM
	TLSClientCA    string   // a file in PEM
	RLS            string   // an address; empty: Envoy's rate limit service is not served
	RLSConfig      string   // a file, or a folder of files, of envoyproxy/ratelimit's configuration

	OTLPEndpoint string
	AccessLog    bool

	// Programs set these; the command has no flag of the same kind for them.

	Log       *slog.Logger
	Tracer    trace.Tracer     // nil: that of OTLPEndpoint
	TracesURL string           // where spans go, resolved; Validate derives it from OTLPEndpoint
	Start     context.Context  // bounds the start
	Follow    bool             // the rules file is followed
	Clock     func() time.Time // nil: time.Now
	Asks      <-chan os.Signal // each value has all followed files and server lists read again; nil: none

	Invalid []error // values that an option could not read
}

// Unsealed reports whether clients have tokens with different rights, and there is no secret that keeps
// one from altering what is another's.
func (s *Settings) Unsealed() bool {
	return s.Tokens != "" && s.Tokens != OpenToAll && s.KeySecret == ""
}

// Default returns the settings of a counterd that sets nothing.
func Default() Settings {
	return Settings{
		Protocol:       memcache.Auto,
		Replicas:       1,
		Timeout:        memcache.DefaultTimeout,
		Grace:          hierarchy.DefaultGrace,
		MaxPending:     engine.DefaultMaxPending,
		Listen:         "127.0.0.1:8080",
		MaxConnections: connections.DefaultMax,
		Log:            slog.Default(),
		Start:          context.Background(),
	}
}

// Embedded reports whether counters are kept in the process: no server is named.
func (s *Settings) Embedded() bool { return s.MemcachedFile == "" && len(s.Memcached) == 0 }

// HasTokens reports whether a file of tokens says which callers are let in.
func (s *Settings) HasTokens() bool { return s.Tokens != "" && s.Tokens != OpenToAll }

// LoopbackOnly reports whether only programs of this machine are let in. Over TLS the
// certificate's name keeps web pages of other origins out.
func (s *Settings) LoopbackOnly() bool { return s.Tokens == "" && s.TLSCert == "" }
