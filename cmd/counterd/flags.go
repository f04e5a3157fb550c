package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/peterbourgon/ff/v3"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/durationflag"
	"github.com/counterd/counterd/internal/server"
	"github.com/counterd/counterd/internal/settings"
	"github.com/counterd/counterd/internal/telemetry/otlp"
	"github.com/counterd/counterd/memcache"
)

// errUsage is the cause of the error of a wrong flag or argument.
var errUsage = errors.New("usage")

// usageError is one line about a wrong flag or argument.
type usageError string

func (e usageError) Error() string { return string(e) }

func (e usageError) Unwrap() error { return errUsage }

// oneLine returns the text of an error in one line, with settings named as flags.
func oneLine(err error) string {
	return strings.ReplaceAll(settings.Spell(err, settings.FlagName), "\n", "; ")
}

// serveFlags are the flags of the server: its settings, and those of the process alone.
type serveFlags struct {
	server.Settings
	rules string // a file; empty: the example
	log   string // a format
}

const serveUsage = `counterd is a distributed rate limiter and event counter with exact sliding windows.

Usage:
  counterd [flags]                                       serve
  counterd validate FILE                                 check a rules file, and print what counters take
  counterd keys -event E -feature K:V [-feature K:V ...] print the Memcached keys of a counter now
  counterd probe [URL]                                   ask a counterd for its health
  counterd ratelimit                                     serve in the place of envoyproxy/ratelimit, by its environment
  counterd -version                                      print the version
  counterd help [keys|validate|probe|ratelimit]          print this, or the help of a command

Flags, each with its environment variable:
`

const serveExamples = `
Examples:
  counterd
  counterd -listen :8080 -tls-cert cert.pem -tls-key key.pem -tokens tokens -admin :9090 -memcached 10.0.0.1:11211,10.0.0.2:11211
  counterd -rules rules.yaml -memcached /run/memcached.sock -log json
  counterd -memcached dns:cache.internal:11211 -rls 127.0.0.1:8081 -rls-config /etc/ratelimit
  counterd -memcached aws:my.cfg.use1.cache.amazonaws.com:11211
  counterd -memcached-file /etc/counterd/servers
  counterd -memcached cache.example:11211 -memcached-tls -memcached-ca ca.pem -memcached-auth /run/secrets/memcached
  counterd -memcached cache.example:11211 -key-secret /run/secrets/keys
`

// register defines the flags of the server. Defaults are those of the settings.
func (s *serveFlags) register(flags flagSet) {
	s.Settings = server.DefaultSettings()
	s.log = "text"
	flags.StringVar(&s.Listen, "listen", s.Listen, "`address` to serve on")
	flags.StringVar(&s.rules, "rules", "", "rules `file`, reloaded when it changes and on SIGHUP; none: one example event, url_shorten")
	registerServers(flags, &s.Settings.Settings, "`servers`, host:port or socket paths, comma-separated; or dns:NAME:PORT: all addresses of a name; or aws:HOST:PORT: the nodes that a cluster's endpoint lists; none: the embedded store")
	registerTLS(flags, &s.Settings.Settings)
	flags.StringVar(&s.MemcachedAuth, "memcached-auth", "", "`file` whose first line, user:password, logs in to the servers")
	flags.StringVar(&s.Tokens, "tokens", "", "`file` of the tokens that let callers in, reloaded when it changes and on SIGHUP; the word none: all callers are let in, with any Host; unset: callers of this machine")
	flags.StringVar(&s.TLSCert, "tls-cert", "", "`file` of the certificate to serve TLS with, and its intermediates, PEM; reloaded when it changes")
	flags.StringVar(&s.TLSKey, "tls-key", "", "`file` of its private key, PEM")
	flags.StringVar(&s.TLSClientCA, "tls-client-ca", "", "`file` of the authorities, PEM, of which clients have to show a certificate")
	flags.StringVar(&s.Admin, "admin", "", "`address` to serve metrics, profiles, healthz and readyz on: metrics are only there then")
	flags.Func("peers", "`URLs` of the other processes, as in http://10.0.0.2:8080, comma-separated, this one may be among them; "+
		"or dns:NAME:PORT: all addresses of a name, over TLS if this process serves it; GET /v1/top asks them, too, with its caller's token", func(text string) error {
		s.Peers = strings.Split(text, ",")
		return nil
	})
	flags.StringVar(&s.PeersCA, "peers-ca", "",
		"`file` of the authorities that issue the peers' certificates, PEM; none: the system's; this process's own certificate is always good")
	flags.StringVar(&s.RLS, "rls", "", "`address` to serve Envoy's rate limit service on, over gRPC; its domains are events of the rules; none: it is not served")
	flags.StringVar(&s.RLSConfig, "rls-config", "", "`file`, or folder of *.yaml files, of envoyproxy/ratelimit's configuration for -rls, reloaded when it changes and on SIGHUP; none: all domains are events")
	flags.DurationVar(&s.DrainDelay, "drain-delay", 0, "how long requests are served on after SIGTERM, while readyz sends callers elsewhere")
	flags.DurationVar(&s.IdleTimeout, "idle-timeout", s.IdleTimeout, "how long a connection of HTTP is kept without a request: longer than load balancers keep theirs, or they send requests on closed ones")
	registerKeySecret(flags, &s.Settings.Settings)
	flags.TextVar(&s.Protocol, "protocol", s.Protocol, "`commands` for the servers: meta, classic (behind a proxy), or auto: what each one knows")
	flags.IntVar(&s.Replicas, "replicas", s.Replicas, fmt.Sprintf("`number` of servers that keep each counter: 1 to %d", memcache.MaxReplicas))
	flags.DurationVar(&s.Timeout, "timeout", s.Timeout, "longest wait for the store, at most half the grace")
	flags.DurationVar(&s.Grace, "grace", s.Grace, "allowance for clock skew and late round trips")
	flags.IntVar(&s.MaxPending, "max-pending", s.MaxPending, "`number` of hits, and of other calls, that may wait for the store; one more is decided by its on_error, or a 503")
	flags.IntVar(&s.MaxConnections, "max-connections", s.MaxConnections, "`number` of clients' connections; for one more one without an accepted request is closed, else an idle one, else it is a 503")
	flags.StringVar(&s.OTLPEndpoint, "otlp-endpoint", "", "`URL` of an OpenTelemetry collector, as in http://127.0.0.1:4318, that gets a trace of each request; none: that of OTEL_EXPORTER_OTLP_ENDPOINT")
	flags.BoolVar(&s.AccessLog, "access-log", false, "log each request, without features, paths and addresses")
	flags.StringVar(&s.log, "log", s.log, "`format` of the log on standard error: text or json")
}

func registerServers(flags flagSet, s *settings.Settings, usage string) {
	flags.Var((*serverList)(&s.Memcached), "memcached", usage)
	flags.Func("memcached-file", "`file` of servers instead, one a line, followed when it changes and on SIGHUP", func(path string) error {
		if path == "" {
			return errors.New("no file is named")
		}
		s.MemcachedFile = path
		return nil
	})
}

func registerTLS(flags flagSet, s *settings.Settings) {
	flags.BoolVar(&s.MemcachedTLS, "memcached-tls", false, "connect to the servers, and to the endpoint of aws:, with TLS; to sockets without")
	flags.StringVar(&s.MemcachedCA, "memcached-ca", "", "`file` of the authorities that issue the servers' certificates, PEM; none: the system's")
	flags.StringVar(&s.MemcachedCert, "memcached-cert", "", "`file` of the certificate to show to the servers, PEM")
	flags.StringVar(&s.MemcachedKey, "memcached-key", "", "`file` of its private key, PEM")
	flags.StringVar(&s.MemcachedServerName, "memcached-server-name", "", "`name` that all servers' certificates are for; none: each for its host")
}

func registerKeySecret(flags flagSet, s *settings.Settings) {
	flags.StringVar(&s.KeySecret, "key-secret", "", "`file` whose first line, 16 characters or more, is the secret of all keys in the servers: without it no reader of the keys finds out which feature a counter counts; it seals reservations, too, which need it where there are -tokens and servers; "+
		"the same for all processes; read at the start only, and another one begins all counters anew")
}

// serverList is a flag of comma-separated servers, or of one source of them.
type serverList []string

func (l *serverList) String() string { return strings.Join(*l, ",") }

// Set checks the spelling of servers. Whether their names resolve is not checked.
func (l *serverList) Set(text string) (err error) {
	*l, err = settings.ParseServers(strings.Split(text, ","))
	return err
}

// parseServe reads the flags of the server and checks them.
func parseServe(args []string, stdout io.Writer) (serveFlags, error) {
	var s serveFlags
	flags := newFlags("counterd", stdout, serveUsage, serveExamples)
	s.register(flags)
	if err := parse(flags, args); err != nil {
		return s, err
	}
	if err := checkEnvironment(flags); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, usageError(fmt.Sprintf("unknown argument %q%s", flags.Arg(0), events.Suggest(flags.Arg(0), slices.Sorted(maps.Keys(commands())))))
	}
	if s.log != "text" && s.log != "json" {
		return s, usageError(fmt.Sprintf("-log: %q is neither text nor json", s.log))
	}
	if err := s.Validate(); err != nil {
		return s, usageError(oneLine(err))
	}
	if s.OTLPEndpoint == "" {
		url, err := otlp.Endpoint("") // of the environment
		if err != nil {
			return s, usageError(err.Error())
		}
		s.TracesURL = url
	}
	return s, nil
}

// flagSet is a set of flags with its help. A wrong argument is an error of one line, without the
// help.
type flagSet struct {
	*flag.FlagSet
	help func()
}

func newFlags(name string, stdout io.Writer, usage, examples string) flagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	return flagSet{flags, func() {
		fmt.Fprint(stdout, usage)
		width := 0
		flags.VisitAll(func(f *flag.Flag) { width = max(width, len(f.Name)) })
		flags.VisitAll(func(f *flag.Flag) {
			value, text := flag.UnquoteUsage(f)
			fmt.Fprintf(stdout, "  -%-*s %-8s %s", width, f.Name, value, text)
			if f.DefValue != "" {
				fmt.Fprintf(stdout, " (default %s)", f.DefValue)
			}
			fmt.Fprintf(stdout, "\n  %-*s %-8s %s\n", width+1, "", "", envName(f.Name))
		})
		fmt.Fprint(stdout, examples)
	}}
}

const envPrefix = "COUNTERD"

func envName(flagName string) string {
	return envPrefix + "_" + strings.ToUpper(strings.ReplaceAll(flagName, "-", "_"))
}

// parse reads arguments, and the environment for flags that they leave out.
func parse(flags flagSet, args []string) error {
	restore := durationflag.Explain(flags.FlagSet)
	err := ff.Parse(flags.FlagSet, args, ff.WithEnvVarPrefix(envPrefix))
	restore()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, flag.ErrHelp):
		flags.help()
		return err
	}
	text := strings.TrimPrefix(err.Error(), "error parsing commandline arguments: ")
	if name, unknown := strings.CutPrefix(text, "flag provided but not defined: -"); unknown {
		return usageError("unknown flag -" + name + events.Suggest(name, flagNames(flags)))
	}
	return usageError(strings.ReplaceAll(text, "\n", " "))
}

// flagNames returns the names of the flags.
func flagNames(flags flagSet) (names []string) {
	flags.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	return names
}

// checkEnvironment finds variables that are no flag's but close to one. Other names with the
// prefix are let pass: Kubernetes sets some for a service of that name.
func checkEnvironment(flags flagSet) error {
	names := flagNames(flags)
	for i := range names {
		names[i] = envName(names[i])
	}
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, envPrefix+"_") || slices.Contains(names, name) {
			continue
		}
		if likely := events.Nearest(name, names); likely != "" {
			return usageError(fmt.Sprintf("unknown variable %s: did you mean %s?", name, likely))
		}
	}
	return nil
}
