package counterd

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/counterd/counterd/internal/settings"
)

// Option is a setting of a Limiter. Options go to [New], which reports the faults of all of them
// together.
type Option func(*settings.Settings)

// invalid notes a value that an option cannot read.
func invalid(s *settings.Settings, setting string, cause error) {
	s.Invalid = append(s.Invalid, &settings.Fault{Setting: setting, Cause: cause})
}

// WithMemcached keeps counters on Memcached servers, shared with every program that names the
// same ones: host:port or the path of a socket each. A single name may be a source of servers
// that is followed: dns:NAME:PORT for all addresses of a name, aws:HOST:PORT for the nodes that
// a cluster's configuration endpoint lists. Without servers, counters are kept in the process.
func WithMemcached(servers ...string) Option {
	return func(s *settings.Settings) {
		if len(servers) == 0 {
			invalid(s, "memcached", errors.New("no server is named: leave the option out to keep counters in the process"))
		}
		s.Memcached = servers
	}
}

// WithMemcachedFile reads the servers from a file, one in a line, and follows it.
func WithMemcachedFile(path string) Option {
	return func(s *settings.Settings) {
		if path == "" {
			invalid(s, "memcached-file", errors.New("no file is named"))
		}
		s.MemcachedFile = path
	}
}

// WithMemcachedTLS connects to the servers, and to the endpoint of aws:, with TLS.
func WithMemcachedTLS() Option { return func(s *settings.Settings) { s.MemcachedTLS = true } }

// WithMemcachedCA names the file, in PEM, of the authorities that issue the servers'
// certificates. Default: the system's.
func WithMemcachedCA(file string) Option {
	return func(s *settings.Settings) { s.MemcachedCA = file }
}

// WithMemcachedCert names the file, in PEM, of the certificate to show to the servers.
func WithMemcachedCert(file string) Option {
	return func(s *settings.Settings) { s.MemcachedCert = file }
}

// WithMemcachedKey names the file, in PEM, of the private key of WithMemcachedCert.
func WithMemcachedKey(file string) Option {
	return func(s *settings.Settings) { s.MemcachedKey = file }
}

// WithMemcachedServerName sets the name that all servers' certificates are for. Default: the
// host of each.
func WithMemcachedServerName(name string) Option {
	return func(s *settings.Settings) { s.MemcachedServerName = name }
}

// WithMemcachedAuth names the file whose first line, user:password, logs in to the servers.
func WithMemcachedAuth(file string) Option {
	return func(s *settings.Settings) { s.MemcachedAuth = file }
}

// WithKeySecret names the file whose first line, 16 characters or more, is the secret of all
// keys in the servers: it keeps a reader of Memcached from finding the feature of a counter.
// All programs that share counters need the same secret.
func WithKeySecret(file string) Option {
	return func(s *settings.Settings) { s.KeySecret = file }
}

// WithProtocol sets the commands for the servers: meta, classic (behind a proxy), or auto, the
// default, which asks each server.
func WithProtocol(name string) Option {
	return func(s *settings.Settings) {
		if err := s.Protocol.UnmarshalText([]byte(name)); err != nil {
			invalid(s, "protocol", err)
		}
	}
}

// WithReplicas keeps each counter on so many servers. Default: 1.
func WithReplicas(n int) Option { return func(s *settings.Settings) { s.Replicas = n } }

// WithTimeout bounds the wait for the store, to at most half the grace. Default: 100 ms.
func WithTimeout(d time.Duration) Option { return func(s *settings.Settings) { s.Timeout = d } }

// WithGrace sets the allowance for clock skew and late round trips; all programs that share
// counters need the same. Default: 2 s.
func WithGrace(d time.Duration) Option { return func(s *settings.Settings) { s.Grace = d } }

// WithMaxPending bounds the hits, and the other calls, that wait for the store. For a hit
// beyond it the on_error of its rules decides; another call fails with ErrOverload. Default:
// 10,000.
func WithMaxPending(n int) Option { return func(s *settings.Settings) { s.MaxPending = n } }

// WithListen sets the address of Serve. Default: 127.0.0.1:8080. An address that other machines
// reach needs WithTokens or WithTLSClientCA.
func WithListen(address string) Option { return func(s *settings.Settings) { s.Listen = address } }

// WithAdmin has Serve serve metrics, profiles and probes on an address of their own.
func WithAdmin(address string) Option { return func(s *settings.Settings) { s.Admin = address } }

// WithMaxConnections bounds the clients' connections of Serve, and the requests that it and
// Handler answer at a time. Default: 10,000.
func WithMaxConnections(n int) Option { return func(s *settings.Settings) { s.MaxConnections = n } }

// WithDrainDelay has Serve answer requests for so long after its context ends, while readyz
// sends callers elsewhere. Default: 0.
func WithDrainDelay(d time.Duration) Option { return func(s *settings.Settings) { s.DrainDelay = d } }

// WithTokens names the file of the tokens that Serve and Handler let callers in by; it is
// followed. The value none leaves an address of Serve open to all callers.
func WithTokens(file string) Option { return func(s *settings.Settings) { s.Tokens = file } }

// WithTLSCert has Serve serve TLS with the certificate in a file, in PEM; it is followed.
func WithTLSCert(file string) Option { return func(s *settings.Settings) { s.TLSCert = file } }

// WithTLSKey names the file, in PEM, of the private key of WithTLSCert.
func WithTLSKey(file string) Option { return func(s *settings.Settings) { s.TLSKey = file } }

// WithTLSClientCA names the file, in PEM, of the authorities of which clients of Serve have to
// show a certificate.
func WithTLSClientCA(file string) Option { return func(s *settings.Settings) { s.TLSClientCA = file } }

// WithPeers names the other processes of the fleet by their URLs, as in http://10.0.0.2:8080: GET /v1/top asks them, too,
// with the token of its caller. This process may be among them, so all processes may have the same list.
func WithPeers(urls ...string) Option {
	return func(s *settings.Settings) {
		if len(urls) == 0 {
			invalid(s, "peers", errors.New("no peer is named: leave the option out for none"))
		}
		s.Peers = urls
	}
}

// WithRLS has Serve serve Envoy's rate limit service, over gRPC, on an address of its own: for Envoy, Istio and Contour.
// A domain is an event of the rules, and the entries of descriptors are its features.
func WithRLS(address string) Option { return func(s *settings.Settings) { s.RLS = address } }

// WithRLSConfig names a file in the format of envoyproxy/ratelimit's configuration, or a folder of *.yaml and *.yml
// files, by which the domains in it are decided; it is followed.
func WithRLSConfig(path string) Option { return func(s *settings.Settings) { s.RLSConfig = path } }

// WithOTLPEndpoint sends a trace of each request to the OpenTelemetry collector at a URL, as in
// http://127.0.0.1:4318. A program with a tracer of its own uses [WithTracer] instead.
func WithOTLPEndpoint(url string) Option { return func(s *settings.Settings) { s.OTLPEndpoint = url } }

// WithAccessLog logs each request of the HTTP interface, without features, paths and addresses.
func WithAccessLog() Option { return func(s *settings.Settings) { s.AccessLog = true } }

// WithReload follows the file of ReadRules and puts each good version of it in force. Each value
// of the channel, such as a SIGHUP, has all followed files and the list of servers read again;
// it may be nil.
func WithReload(asks <-chan os.Signal) Option {
	return func(s *settings.Settings) { s.Follow, s.Asks = true, asks }
}

// WithLog sets the log. Default: slog.Default.
func WithLog(log *slog.Logger) Option { return func(s *settings.Settings) { s.Log = log } }

// WithTracer makes spans of decisions, requests and round trips. Default: none.
func WithTracer(tracer trace.Tracer) Option { return func(s *settings.Settings) { s.Tracer = tracer } }

// WithContext ends the start when the context ends: New waits up to 10 seconds for the servers
// of a source. It does not end the Limiter; Close does.
func WithContext(ctx context.Context) Option { return func(s *settings.Settings) { s.Start = ctx } }
