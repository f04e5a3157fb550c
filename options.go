package counterd

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/counterd/counterd/internal/assembly"
	"github.com/counterd/counterd/internal/settings"
)

// Option is a setting of a Limiter. Options go to [New], which reports the faults of all of them
// together.
type Option func(*assembly.Config)

// invalid notes a value that an option cannot read.
func invalid(c *assembly.Config, setting string, cause error) {
	c.Settings.Invalid = append(c.Settings.Invalid, &settings.Fault{Setting: setting, Cause: cause})
}

// WithMemcached keeps counters on Memcached servers, shared with every program that names the
// same ones: host:port or the path of a socket each. A single name may be a source of servers
// that is followed: dns:NAME:PORT for all addresses of a name, aws:HOST:PORT for the nodes that
// a cluster's configuration endpoint lists. Without servers, counters are kept in the process.
func WithMemcached(servers ...string) Option {
	return func(c *assembly.Config) {
		if len(servers) == 0 {
			invalid(c, "memcached", errors.New("no server is named: leave the option out to keep counters in the process"))
		}
		c.Settings.Memcached = servers
	}
}

// WithMemcachedFile reads the servers from a file, one in a line, and follows it.
func WithMemcachedFile(path string) Option {
	return func(c *assembly.Config) {
		if path == "" {
			invalid(c, "memcached-file", errors.New("no file is named"))
		}
		c.Settings.MemcachedFile = path
	}
}

// WithMemcachedTLS connects to the servers, and to the endpoint of aws:, with TLS.
func WithMemcachedTLS() Option { return func(c *assembly.Config) { c.Settings.MemcachedTLS = true } }

// WithMemcachedCA names the file, in PEM, of the authorities that issue the servers'
// certificates. Default: the system's.
func WithMemcachedCA(file string) Option {
	return func(c *assembly.Config) { c.Settings.MemcachedCA = file }
}

// WithMemcachedCert names the file, in PEM, of the certificate to show to the servers.
func WithMemcachedCert(file string) Option {
	return func(c *assembly.Config) { c.Settings.MemcachedCert = file }
}

// WithMemcachedKey names the file, in PEM, of the private key of WithMemcachedCert.
func WithMemcachedKey(file string) Option {
	return func(c *assembly.Config) { c.Settings.MemcachedKey = file }
}

// WithMemcachedServerName sets the name that all servers' certificates are for. Default: the
// host of each.
func WithMemcachedServerName(name string) Option {
	return func(c *assembly.Config) { c.Settings.MemcachedServerName = name }
}

// WithMemcachedAuth names the file whose first line, user:password, logs in to the servers.
func WithMemcachedAuth(file string) Option {
	return func(c *assembly.Config) { c.Settings.MemcachedAuth = file }
}

// WithKeySecret names the file whose first line, 16 characters or more, is the secret of all
// keys in the servers: it keeps a reader of Memcached from finding the feature of a counter.
// All programs that share counters need the same secret.
func WithKeySecret(file string) Option {
	return func(c *assembly.Config) { c.Settings.KeySecret = file }
}

// WithProtocol sets the commands for the servers: meta, classic (behind a proxy), or auto, the
// default, which asks each server.
func WithProtocol(name string) Option {
	return func(c *assembly.Config) {
		if err := c.Settings.Protocol.UnmarshalText([]byte(name)); err != nil {
			invalid(c, "protocol", err)
		}
	}
}

// WithReplicas keeps each counter on so many servers. Default: 1.
func WithReplicas(n int) Option { return func(c *assembly.Config) { c.Settings.Replicas = n } }

// WithTimeout bounds the wait for the store, to at most half the grace. Default: 100 ms.
func WithTimeout(d time.Duration) Option { return func(c *assembly.Config) { c.Settings.Timeout = d } }

// WithGrace sets the allowance for clock skew and late round trips; all programs that share
// counters need the same. Default: 2 s.
func WithGrace(d time.Duration) Option { return func(c *assembly.Config) { c.Settings.Grace = d } }

// WithMaxPending bounds the hits, and the other calls, that wait for the store. For a hit
// beyond it the on_error of its rules decides; another call fails with ErrOverload. Default:
// 10,000.
func WithMaxPending(n int) Option { return func(c *assembly.Config) { c.Settings.MaxPending = n } }

// WithLog sets the log. Default: slog.Default.
func WithLog(log *slog.Logger) Option { return func(c *assembly.Config) { c.Settings.Log = log } }

// WithContext ends the start when the context ends: New waits up to 10 seconds for the servers
// of a source. It does not end the Limiter; Close does.
func WithContext(ctx context.Context) Option {
	return func(c *assembly.Config) { c.Settings.Start = ctx }
}
