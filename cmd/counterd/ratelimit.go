package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/counterd/counterd/events"
)

const ratelimitUsage = `counterd ratelimit serves in the place of the image of envoyproxy/ratelimit: it reads
the environment variables of that program, and writes how it serves to standard error.
docs/envoy.md lists the variables. Flags, and their variables, outrank them.

Usage:
  counterd ratelimit [flags of counterd]

Example:
  RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit MEMCACHE_HOST_PORT=10.0.0.1:11211 counterd ratelimit
`

// ratelimit serves by the environment of envoyproxy/ratelimit.
func ratelimit(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	for _, arg := range args {
		if strings.TrimLeft(arg, "-") == "h" || strings.TrimLeft(arg, "-") == "help" {
			_, err := io.WriteString(stdout, ratelimitUsage)
			return err
		}
	}
	e, err := theirEnvironment(os.LookupEnv)
	if err != nil {
		return err
	}
	for _, warning := range e.warnings {
		fmt.Fprintf(stderr, "counterd: warning: %s\n", warning)
	}
	fmt.Fprintf(stderr, "counterd %s\n", strings.Join(e.flags, " "))
	s, err := parseServe(append(e.flags, args...), stdout)
	if err != nil {
		return err
	}
	s.OpenMetrics = true
	return s.serve(ctx, e.rules, stderr)
}

// environment is what the environment of envoyproxy/ratelimit means here.
type environment struct {
	lookup   func(string) (string, bool)
	flags    []string
	rules    *events.Rules // where there is no file of them
	warnings []string      // of variables without an effect
	faults   []string
}

// add adds a flag, unless its own variable is set.
func (e *environment) add(name, value string) {
	if e.text(envName(name), "") == "" {
		e.flags = append(e.flags, "-"+name+"="+value)
	}
}

// text returns the value of a variable; an empty one is unset, as there.
func (e *environment) text(name, unset string) string {
	value, _ := e.lookup(name)
	return cmp.Or(value, unset)
}

func (e *environment) truth(name string) bool {
	value := e.text(name, "false")
	truth, err := strconv.ParseBool(value)
	if err != nil {
		e.faults = append(e.faults, fmt.Sprintf("%s=%s is neither true nor false", name, value))
	}
	return truth
}

// refused are the variables whose effect counterd does not have, with the value that has none, and what to do.
var refused = []struct{ name, harmless, instead string }{
	{"CACHE_KEY_PREFIX", "", "set -key-secret FILE: installations with different ones count apart on one Memcached"},
	{"CONFIG_TYPE", "FILE", "name the files by RUNTIME_ROOT: there is no xDS"},
	{"GRPC_UDS", "", "set GRPC_HOST and GRPC_PORT: gRPC is served over TCP"},
	{"GRPC_CLIENT_TLS_SAN", "", "set GRPC_CLIENT_TLS_CACERT to an authority that issues certificates for your proxies alone"},
	{"MEMCACHE_SRV", "", "set MEMCACHE_HOST_PORT, or -memcached dns:NAME:PORT, which follows the addresses of a name"},
	{"MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", "false", "set -memcached-server-name to the name in the servers' certificates"},
	{"SHADOW_MODE", "false", "set shadow_mode: true in the limits"},
	{"QUOTA_MODE", "false", "set quota_mode: true in the limits"},
}

// ignored are variables that ask for more than counterd does, with the value that does not, and what it does.
var ignored = []struct{ name, harmless, does string }{
	{"EXTRA_TAGS", "", "metrics have no further labels"},
	{"GRPC_MAX_CONNECTION_AGE", "24h", "connections end after an hour"},
	{"PROMETHEUS_PATH", "/metrics", "metrics are at /metrics"},
	{"PROMETHEUS_MAPPER_YAML", "", "metrics have the names of docs/metrics.md"},
	{"RESPONSE_DYNAMIC_METADATA", "false", "dynamic_metadata always names the limits that deny, and has the metadata of limits"},
	{"STATSD_HOST", "localhost", "there is no statsd: metrics are for Prometheus"},
	{"USE_DOG_STATSD", "false", "there is no statsd: metrics are for Prometheus"},
	{"TRACING_SAMPLING_RATE", "1", "each call has a span, unless its caller's trace is not sampled"},
}

// theirEnvironment reads the variables of envoyproxy/ratelimit.
func theirEnvironment(lookup func(string) (string, bool)) (*environment, error) {
	e := &environment{lookup: lookup}
	for _, of := range refused {
		value := e.text(of.name, of.harmless)
		off, err := strconv.ParseBool(value)
		isOff := of.harmless == "false" && err == nil && !off
		if !isOff && !strings.EqualFold(value, of.harmless) {
			e.faults = append(e.faults, fmt.Sprintf("%s=%s has no counterpart: %s", of.name, value, of.instead))
		}
	}
	for _, of := range ignored {
		if e.text(of.name, of.harmless) != of.harmless {
			e.warnings = append(e.warnings, of.name+": "+of.does)
		}
	}
	e.add("listen", net.JoinHostPort(e.text("HOST", "0.0.0.0"), e.text("PORT", "8080")))
	e.add("rls", net.JoinHostPort(e.text("GRPC_HOST", "0.0.0.0"), e.text("GRPC_PORT", "8081")))
	e.add("rls-config", filepath.Join(e.text("RUNTIME_ROOT", "/srv/runtime_data/current"), e.text("RUNTIME_SUBDIRECTORY", ""), e.text("RUNTIME_APPDIRECTORY", "config")))
	e.memcached()
	e.access()
	switch {
	case e.truth("USE_PROMETHEUS"):
		e.add("admin", e.text("PROMETHEUS_ADDR", ":9090"))
	case e.text("DEBUG_HOST", "") != "" || e.text("DEBUG_PORT", "") != "":
		e.add("admin", net.JoinHostPort(e.text("DEBUG_HOST", "0.0.0.0"), e.text("DEBUG_PORT", "6070")))
	}
	if strings.EqualFold(e.text("LOG_FORMAT", "text"), "json") {
		e.add("log", "json")
	}
	e.rules = &events.Rules{Headers: []events.Header{events.HeaderNone}}
	if e.truth("LIMIT_RESPONSE_HEADERS_ENABLED") {
		e.rules.Headers[0] = events.HeaderXRateLimit
		e.warnings = append(e.warnings, "LIMIT_RESPONSE_HEADERS_ENABLED: the headers are X-RateLimit-Limit, -Remaining and -Reset, whatever LIMIT_LIMIT_HEADER and its like say")
	}
	if len(e.faults) > 0 {
		return nil, usageError(strings.Join(e.faults, "; "))
	}
	return e, nil
}

// memcached reads where counters are kept.
func (e *environment) memcached() {
	servers := e.text("MEMCACHE_HOST_PORT", "")
	switch backend := e.text("BACKEND_TYPE", ""); {
	case servers == "":
		e.faults = append(e.faults, "MEMCACHE_HOST_PORT is missing: counters are kept on Memcached, so set BACKEND_TYPE=memcache and MEMCACHE_HOST_PORT=host:port")
	case backend != "" && backend != "memcache":
		e.faults = append(e.faults, fmt.Sprintf("BACKEND_TYPE=%s: counters are kept on Memcached, so set it to memcache", backend))
	}
	e.add("memcached", servers)
	if e.truth("MEMCACHE_TLS") {
		e.add("memcached-tls", "true")
		for _, of := range []struct{ variable, flag string }{
			{"MEMCACHE_TLS_CACERT", "memcached-ca"}, {"MEMCACHE_TLS_CLIENT_CERT", "memcached-cert"}, {"MEMCACHE_TLS_CLIENT_KEY", "memcached-key"},
		} {
			if file := e.text(of.variable, ""); file != "" {
				e.add(of.flag, file)
			}
		}
	}
}

// access reads TLS. Callers need no token there, unless the flags of counterd say so.
func (e *environment) access() {
	if e.truth("GRPC_SERVER_USE_TLS") {
		e.warnings = append(e.warnings, "GRPC_SERVER_USE_TLS: the address of HOST and PORT serves TLS, too")
		cert, key := e.text("GRPC_SERVER_TLS_CERT", ""), e.text("GRPC_SERVER_TLS_KEY", "")
		if (cert == "" || key == "") && e.text(envName("tls-cert"), "") == "" {
			e.faults = append(e.faults, "GRPC_SERVER_USE_TLS=true without a certificate: set GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY")
		}
		e.add("tls-cert", cert)
		e.add("tls-key", key)
		if authorities := e.text("GRPC_CLIENT_TLS_CACERT", ""); authorities != "" {
			e.add("tls-client-ca", authorities)
		}
	}
	e.add("tokens", "none")
}
