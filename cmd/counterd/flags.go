package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/peterbourgon/ff/v3"

	"github.com/counterd/counterd/api/connections"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/durationflag"
	"github.com/counterd/counterd/memcache"
)

// errUsage is what a wrong flag or argument wraps.
var errUsage = errors.New("usage")

// usageError is one line about a wrong flag or argument.
type usageError string

func (e usageError) Error() string { return string(e) }

func (e usageError) Unwrap() error { return errUsage }

// maxGrace bounds the grace: with a longer one every bucket lives longer.
const maxGrace = time.Minute

// settings are what the flags say.
type settings struct {
	listen    string
	rules     string
	memcached fleetServers
	security  security
	access    access
	keySecret keySecret
	protocol  memcache.Protocol
	replicas  int
	timeout   time.Duration
	grace     time.Duration
	pending   int
	conns     int
	log       string
	tracing   tracing
}

// checkListen finds what is not written as an address to serve on.
func checkListen(address string) error {
	_, port, err := net.SplitHostPort(address)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not host:port, nor :port for all addresses", address)
	case !validPort(port):
		return fmt.Errorf("%q has no valid port", address)
	}
	return nil
}

// validPort takes numbers, and the names that the system has for them.
func validPort(port string) bool {
	_, err := net.LookupPort("tcp", port)
	return port != "" && err == nil
}

const serveUsage = `counterd serves exact counters over HTTP.

Usage:
  counterd [flags]                                       serve
  counterd validate FILE                                 check a rules file, and say what each event costs
  counterd keys -event E -feature K:V [-feature K:V ...] print the Memcached keys of a counter now
  counterd probe [URL]                                   ask a counterd how it is, for health checks
  counterd -version                                      print the version
  counterd help [keys|validate|probe]                    print this, or the help of a command

Flags, each with its environment variable:
`

const serveExamples = `
Examples:
  counterd
  counterd -listen :8080 -tls-cert cert.pem -tls-key key.pem -tokens tokens -admin :9090 -memcached 10.0.0.1:11211,10.0.0.2:11211
  counterd -rules rules.yaml -memcached /run/memcached.sock -log json
  counterd -memcached dns:cache.internal:11211
  counterd -memcached aws:my.cfg.use1.cache.amazonaws.com:11211
  counterd -memcached-file /etc/counterd/servers
  counterd -memcached cache.example:11211 -memcached-tls -memcached-ca ca.pem -memcached-auth /run/secrets/memcached
  counterd -memcached cache.example:11211 -key-secret /run/secrets/keys
`

// parseServe reads the flags of the server and checks them.
func parseServe(args []string, stdout io.Writer) (settings, error) {
	var s settings
	flags := newFlags("counterd", stdout, serveUsage, serveExamples)
	flags.StringVar(&s.listen, "listen", "127.0.0.1:8080", "`address` to serve on")
	flags.StringVar(&s.rules, "rules", "", "rules `file`, reloaded when it changes and on SIGHUP; none: one example event, url_shorten")
	s.memcached.register(flags, "`servers`, host:port or socket paths, comma-separated; or dns:NAME:PORT: all addresses of a name; or aws:HOST:PORT: the nodes that a cluster's endpoint tells; none: the embedded store")
	s.security.addFlags(flags)
	s.access.addFlags(flags)
	s.keySecret.addFlag(flags)
	flags.TextVar(&s.protocol, "protocol", memcache.Auto, "`commands` for the servers: meta, classic (behind a proxy), or auto: what each one knows")
	flags.IntVar(&s.replicas, "replicas", 1, fmt.Sprintf("`copies` of each counter, on different servers: 1 to %d", memcache.MaxReplicas))
	flags.DurationVar(&s.timeout, "timeout", memcache.DefaultTimeout, "longest wait for the store, at most half the grace")
	flags.DurationVar(&s.grace, "grace", hierarchy.DefaultGrace, "allowance for clock skew and late trips")
	flags.IntVar(&s.pending, "max-pending", hierarchy.DefaultMaxPending, "`number` of hits, and of other calls, that may wait for the store; one more is decided by its on_error, or a 503")
	flags.IntVar(&s.conns, "max-connections", connections.DefaultMax, "`number` of clients' connections; for one more one without a request that was let in is closed, else an idle one, else it is a 503")
	s.tracing.addFlags(flags)
	flags.StringVar(&s.log, "log", "text", "`format` of the log on standard error: text or json")
	if err := parse(flags, args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, usageError(fmt.Sprintf("unknown argument %q", flags.Arg(0)))
	}
	if err := s.memcached.check(); err != nil {
		return s, err
	}
	if err := checkListen(s.listen); err != nil {
		return s, usageError("-listen: " + err.Error())
	}
	switch {
	case s.replicas < 1 || s.replicas > memcache.MaxReplicas:
		return s, usageError(fmt.Sprintf("-replicas: %d is not between 1 and %d", s.replicas, memcache.MaxReplicas))
	case s.memcached.fewerThan(s.replicas):
		return s, usageError(fmt.Sprintf("-replicas: %d copies need as many servers: -memcached names %d", s.replicas, len(s.memcached.named)))
	case s.grace < time.Second || s.grace > maxGrace:
		return s, usageError(fmt.Sprintf("-grace: %s is not between 1s and %s", s.grace, maxGrace))
	case s.timeout < time.Millisecond || s.timeout > s.grace/2:
		return s, usageError(fmt.Sprintf("-timeout: %s is not between 1ms and half the grace, %s", s.timeout, s.grace/2))
	case s.pending < 1:
		return s, usageError(fmt.Sprintf("-max-pending: %d is not at least 1", s.pending))
	case s.conns < 1:
		return s, usageError(fmt.Sprintf("-max-connections: %d is not at least 1", s.conns))
	case s.log != "text" && s.log != "json":
		return s, usageError(fmt.Sprintf("-log: %q is neither text nor json", s.log))
	}
	if err := s.tracing.check(); err != nil {
		return s, err
	}
	if err := s.access.check(s.listen); err != nil {
		return s, err
	}
	return s, cmp.Or(s.keySecret.check(s.memcached), s.security.check(s.memcached))
}

// flagSet is a set of flags with its help. What is wrong with arguments is said
// in one line, without the help.
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

// parse reads arguments, and the environment for what they leave out.
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
	return usageError(strings.ReplaceAll(text, "\n", " "))
}

// readRules returns the rules of the file, or the example where none is named.
func readRules(path string) (*events.Rules, error) {
	if path == "" {
		return events.Example(), nil
	}
	return events.ReadRules(path)
}

func newLog(format string, to io.Writer) *slog.Logger {
	if format == "json" {
		return slog.New(slog.NewJSONHandler(to, nil))
	}
	return slog.New(slog.NewTextHandler(to, nil))
}
