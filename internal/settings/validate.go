package settings

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/counterd/counterd/internal/discovery"
	"github.com/counterd/counterd/internal/insight/peers"
	"github.com/counterd/counterd/internal/telemetry/otlp"
	"github.com/counterd/counterd/memcache"
)

const (
	// maxGrace bounds the grace: a longer one keeps every bucket longer.
	maxGrace = time.Minute
	// maxDrainDelay bounds the delay: supervisors end a process that takes longer.
	maxDrainDelay = 10 * time.Minute
)

// Validate returns all faults of the settings together, joined, each a *Fault. It reads no file.
func (s *Settings) Validate() error {
	v := validator{Settings: s, faults: s.Invalid}
	v.servers()
	v.engine()
	v.security()
	v.access()
	if s.OTLPEndpoint != "" {
		url, err := otlp.Endpoint(s.OTLPEndpoint)
		if err != nil {
			v.faults = append(v.faults, &Fault{Setting: "otlp-endpoint", Cause: err})
		}
		s.TracesURL = url
	}
	if s.Log == nil {
		v.fault("log", "the logger is nil: leave the option out, or discard the log by slog.DiscardHandler")
	}
	if s.Start == nil {
		v.fault("context", "the context is nil")
	}
	return errors.Join(v.faults...)
}

// ValidateKeys returns the faults of those settings that say where a counter is kept. A secret
// needs no server: keys depend on it alone.
func (s *Settings) ValidateKeys() error {
	v := validator{Settings: s, faults: s.Invalid}
	secret := s.KeySecret
	s.KeySecret = ""
	v.servers()
	v.security()
	s.KeySecret = secret
	return errors.Join(v.faults...)
}

// validator collects faults of settings.
type validator struct {
	*Settings
	faults []error
}

func (v *validator) fault(setting, reason string, args ...any) {
	v.faults = append(v.faults, &Fault{Setting: setting, Reason: fmt.Sprintf(reason, args...)})
}

func (v *validator) servers() {
	if v.MemcachedFile != "" && len(v.Memcached) > 0 {
		v.fault("memcached-file", "{memcached} names the servers already: leave one of the two out")
	}
	if servers, err := ParseServers(v.Memcached); err != nil && len(v.Memcached) > 0 {
		v.faults = append(v.faults, &Fault{Setting: "memcached", Cause: err})
	} else {
		v.Memcached = servers
	}
	switch {
	case v.Replicas < 1 || v.Replicas > memcache.MaxReplicas:
		v.fault("replicas", "%d is not between 1 and %d", v.Replicas, memcache.MaxReplicas)
	case v.fewerThanReplicas():
		v.fault("replicas", "%d replicas need as many servers: {memcached} names %d", v.Replicas, len(v.Memcached))
	}
}

// fewerThanReplicas reports whether fewer servers are named than replicas are set. The number
// of servers that a source finds may change.
func (v *validator) fewerThanReplicas() bool {
	source, _, err := v.Source()
	_, fixed := source.(discovery.Static)
	return v.Replicas > 1 && err == nil && fixed && len(v.Memcached) < v.Replicas
}

func (v *validator) engine() {
	switch {
	case v.Grace < time.Second || v.Grace > maxGrace:
		v.fault("grace", "%s is not between 1s and %s", v.Grace, maxGrace)
	case v.Timeout < time.Millisecond || v.Timeout > v.Grace/2:
		v.fault("timeout", "%s is not between 1ms and half the grace, %s: set a longer {grace}, up to %s", v.Timeout, v.Grace/2, maxGrace)
	}
	if v.MaxPending < 1 {
		v.fault("max-pending", "%d is not at least 1", v.MaxPending)
	}
	if v.MaxConnections < 1 {
		v.fault("max-connections", "%d is not at least 1", v.MaxConnections)
	}
}

// security finds settings of connections to servers that do not fit together.
func (v *validator) security() {
	if !v.MemcachedTLS {
		for _, of := range []struct{ setting, value string }{
			{"memcached-ca", v.MemcachedCA}, {"memcached-cert", v.MemcachedCert},
			{"memcached-key", v.MemcachedKey}, {"memcached-server-name", v.MemcachedServerName},
		} {
			if of.value != "" {
				v.fault(of.setting, "set {memcached-tls}, too: without it there is no TLS")
			}
		}
	}
	if v.Embedded() {
		for _, of := range []struct {
			setting string
			set     bool
		}{{"memcached-tls", v.MemcachedTLS}, {"memcached-auth", v.MemcachedAuth != ""}, {"key-secret", v.KeySecret != ""}} {
			if of.set {
				v.fault(of.setting, "no server is named: set {memcached} or {memcached-file}, too")
			}
		}
		return
	}
	if v.MemcachedTLS && !v.overNetwork() {
		v.fault("memcached-tls", "all servers are sockets, which have no TLS")
	}
	if v.MemcachedAuth != "" && v.byEndpoint() {
		v.fault("memcached-auth", "the endpoint of aws: takes no password: name the servers otherwise")
	}
	v.pair("memcached-cert", v.MemcachedCert, "memcached-key", v.MemcachedKey)
}

// pair finds a certificate without its key, and a key without its certificate.
func (v *validator) pair(cert, certFile, key, keyFile string) {
	switch {
	case certFile != "" && keyFile == "":
		v.fault(cert, "name its private key by {%s}", key)
	case keyFile != "" && certFile == "":
		v.fault(key, "name its certificate by {%s}", cert)
	}
}

// overNetwork reports whether a server is not a socket.
func (v *validator) overNetwork() bool {
	if v.MemcachedFile != "" {
		return true // it may name one later
	}
	for _, name := range v.Memcached {
		if !strings.Contains(name, "/") {
			return true
		}
	}
	return false
}

// byEndpoint reports whether a cluster's endpoint lists the servers.
func (v *validator) byEndpoint() bool {
	source, _, err := v.Source()
	_, cluster := source.(*discovery.Cluster)
	return err == nil && cluster
}

// access finds settings that do not fit together, and addresses that other machines reach
// although no setting limits the callers.
func (v *validator) access() {
	v.pair("tls-cert", v.TLSCert, "tls-key", v.TLSKey)
	if v.TLSClientCA != "" && v.TLSCert == "" {
		v.fault("tls-client-ca", "set {tls-cert} and {tls-key}, too: without them there is no TLS")
	}
	if v.DrainDelay < 0 || v.DrainDelay > maxDrainDelay {
		v.fault("drain-delay", "%s is not between 0s and %s", v.DrainDelay, maxDrainDelay)
	}
	if err := peers.Check(v.Peers); err != nil {
		v.faults = append(v.faults, &Fault{Setting: "peers", Cause: err})
	}
	v.address("listen", v.Listen)
	if v.RLS != "" {
		v.address("rls", v.RLS)
	} else if v.RLSConfig != "" {
		v.fault("rls-config", "set {rls}, too: without it nothing is asked by the configuration")
	}
	if v.Admin == "" {
		return
	}
	if err := CheckListen(v.Admin); err != nil {
		v.faults = append(v.faults, &Fault{Setting: "admin", Cause: err})
	} else if v.Tokens == "" && !OnLoopback(v.Admin) {
		// Probes and scrapers have no client certificate, so none is asked for there.
		v.fault("admin", "%s is reachable from other machines: set {tokens} FILE, or {tokens} %s to leave it open", v.Admin, OpenToAll)
	}
}

// address finds what is wrong with an address for clients.
func (v *validator) address(setting, address string) {
	if err := CheckListen(address); err != nil {
		v.faults = append(v.faults, &Fault{Setting: setting, Cause: err})
	} else if v.Tokens == "" && v.TLSClientCA == "" && !OnLoopback(address) {
		v.fault(setting, "%s is reachable from other machines: set {tokens} FILE or {tls-client-ca} FILE, or {tokens} %s to leave it open", address, OpenToAll)
	}
}

// CheckListen finds what is not written as an address to serve on.
func CheckListen(address string) error {
	_, port, err := net.SplitHostPort(address)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not host:port, nor :port for all addresses", address)
	case !validPort(port):
		return fmt.Errorf("%q has no valid port", address)
	}
	return nil
}

// validPort takes numbers, and the system's names of ports.
func validPort(port string) bool {
	_, err := net.LookupPort("tcp", port)
	return port != "" && err == nil
}

// OnLoopback reports whether only this machine reaches the address.
func OnLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}
