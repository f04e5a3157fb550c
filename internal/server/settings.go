package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/counterd/counterd/internal/connections"
	"github.com/counterd/counterd/internal/insight/peers"
	"github.com/counterd/counterd/internal/settings"
	"github.com/counterd/counterd/internal/telemetry/otlp"
)

// OpenToAll is the value of Tokens by which an operator opens the interface to all callers.
const OpenToAll = "none"

// maxDrainDelay bounds the delay: supervisors end a process that takes longer.
const maxDrainDelay = 10 * time.Minute

// maxIdleTimeout bounds the time for which a connection is kept without a request.
const maxIdleTimeout = 24 * time.Hour

// Settings are the settings of one server: those of its limiter, and of serving. The name of each in errors is the
// command's flag without its dash.
type Settings struct {
	settings.Settings

	Listen         string
	Admin          string // an address; empty: operators use Listen
	OpenMetrics    bool   // with OpenToAll, Admin serves nothing but metrics and probes, unless on the loopback
	MaxConnections int
	DrainDelay     time.Duration
	IdleTimeout    time.Duration // of a connection of HTTP without a request; zero: that of api.NewServer
	Peers          []string      // URLs of the other processes of the fleet, or dns:NAME:PORT
	PeersCA        string        // a file in PEM; empty: the system's authorities
	Tokens         string        // a file, or OpenToAll; empty: loopback only
	TLSCert        string        // a file in PEM
	TLSKey         string        // a file in PEM
	TLSClientCA    string        // a file in PEM
	RLS            string        // an address; empty: Envoy's rate limit service is not served
	RLSConfig      string        // a file, or a folder of files, of envoyproxy/ratelimit's configuration

	OTLPEndpoint string
	TracesURL    string // where spans go, resolved; Validate derives it from OTLPEndpoint
	AccessLog    bool

	LinesDropped func() int64 // returns the number of lines of the log that were dropped; nil: none ever are

	Asks <-chan os.Signal // each value has all followed files and server lists read again; nil: none
}

// DefaultSettings returns the settings of a server that sets nothing.
func DefaultSettings() Settings {
	return Settings{Settings: settings.Default(), Listen: "127.0.0.1:8080", MaxConnections: connections.DefaultMax, IdleTimeout: 2 * time.Minute}
}

// unsealed reports whether clients have tokens with different rights, and there is no secret that keeps
// one from altering what is another's. The embedded store's reservations are sealed by a secret of this process alone.
func (s *Settings) unsealed() bool { return s.hasTokens() && s.KeySecret == "" && !s.Embedded() }

// hasTokens reports whether a file of tokens says which callers are let in.
func (s *Settings) hasTokens() bool { return s.Tokens != "" && s.Tokens != OpenToAll }

// LoopbackOnly reports whether only programs of this machine are let in. Over TLS the
// certificate's name keeps web pages of other origins out.
func (s *Settings) LoopbackOnly() bool { return s.Tokens == "" && s.TLSCert == "" }

// Validate returns all faults of the settings together, joined, each a *settings.Fault. It reads no file.
func (s *Settings) Validate() error {
	faults := []error{s.Settings.Validate()}
	add := func(setting string, cause error) {
		if cause != nil {
			faults = append(faults, &settings.Fault{Setting: setting, Cause: cause})
		}
	}
	fault := func(setting, reason string, args ...any) {
		faults = append(faults, &settings.Fault{Setting: setting, Reason: fmt.Sprintf(reason, args...)})
	}
	if s.MaxConnections < 1 {
		fault("max-connections", "%d is not at least 1", s.MaxConnections)
	}
	faults = append(faults, settings.CheckPair("tls-cert", s.TLSCert, "tls-key", s.TLSKey))
	if s.TLSClientCA != "" && s.TLSCert == "" {
		fault("tls-client-ca", "set {tls-cert} and {tls-key}, too: without them there is no TLS")
	}
	if s.DrainDelay < 0 || s.DrainDelay > maxDrainDelay {
		fault("drain-delay", "%s is not between 0s and %s", s.DrainDelay, maxDrainDelay)
	}
	if s.IdleTimeout < time.Second || s.IdleTimeout > maxIdleTimeout {
		fault("idle-timeout", "%s is not between 1s and %s", s.IdleTimeout, maxIdleTimeout)
	}
	add("peers", peers.Check(s.Peers))
	if s.PeersCA != "" && len(s.Peers) == 0 {
		fault("peers-ca", "set {peers}, too: without them no certificate is verified")
	}
	faults = append(faults, s.checkAddress("listen", s.Listen))
	if s.RLS != "" {
		faults = append(faults, s.checkAddress("rls", s.RLS))
	} else if s.RLSConfig != "" {
		fault("rls-config", "set {rls}, too: without it nothing is asked by the configuration")
	}
	if s.Admin != "" {
		err := CheckListen(s.Admin)
		add("admin", err)
		// Probes and scrapers have no client certificate, so none is asked for there.
		if err == nil && s.Tokens == "" && !settings.OnLoopback(s.Admin) {
			fault("admin", "%s is reachable from other machines: set {tokens} FILE, or {tokens} %s to leave it open", s.Admin, OpenToAll)
		}
	}
	if s.OTLPEndpoint != "" {
		url, err := otlp.Endpoint(s.OTLPEndpoint)
		add("otlp-endpoint", err)
		s.TracesURL = url
	}
	return errors.Join(faults...)
}

// checkAddress finds what is wrong with an address for clients.
func (s *Settings) checkAddress(setting, address string) error {
	if err := CheckListen(address); err != nil {
		return &settings.Fault{Setting: setting, Cause: err}
	}
	if s.Tokens == "" && s.TLSClientCA == "" && !settings.OnLoopback(address) {
		return &settings.Fault{Setting: setting, Reason: fmt.Sprintf(
			"%s is reachable from other machines: set {tokens} FILE or {tls-client-ca} FILE, or {tokens} %s to leave it open", address, OpenToAll)}
	}
	return nil
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
