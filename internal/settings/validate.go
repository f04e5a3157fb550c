package settings

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/counterd/counterd/internal/discovery"
	"github.com/counterd/counterd/memcache"
)

const (
	// maxGrace bounds the grace: a longer one keeps every bucket longer.
	maxGrace = time.Minute
)

// Validate returns all faults of the settings together, joined, each a *Fault. It reads no file.
func (s *Settings) Validate() error {
	v := validator{Settings: s, faults: s.Invalid}
	v.servers()
	v.engine()
	v.security()
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
	if err := CheckPair("memcached-cert", v.MemcachedCert, "memcached-key", v.MemcachedKey); err != nil {
		v.faults = append(v.faults, err)
	}
}

// CheckPair finds a certificate without its key, and a key without its certificate.
func CheckPair(cert, certFile, key, keyFile string) error {
	switch {
	case certFile != "" && keyFile == "":
		return &Fault{Setting: cert, Reason: "name its private key by {" + key + "}"}
	case keyFile != "" && certFile == "":
		return &Fault{Setting: key, Reason: "name its certificate by {" + cert + "}"}
	}
	return nil
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

// OnLoopback reports whether only this machine reaches the address.
func OnLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}
