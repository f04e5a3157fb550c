package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"

	"github.com/counterd/counterd/internal/authorities"
	"github.com/counterd/counterd/memcache"
	"github.com/counterd/counterd/memcache/discovery"
)

// security is what the flags say of connections to the Memcached servers.
type security struct {
	tls        bool
	ca         string
	cert, key  string
	serverName string
	auth       string
}

func (s *security) addFlags(flags flagSet) {
	s.addTLSFlags(flags)
	flags.StringVar(&s.auth, "memcached-auth", "", "`file` whose first line, user:password, is what the servers are told")
}

// addTLSFlags defines the flags of TLS alone.
func (s *security) addTLSFlags(flags flagSet) {
	flags.BoolVar(&s.tls, "memcached-tls", false, "connect to the servers, and to the endpoint of aws:, with TLS; to sockets without")
	flags.StringVar(&s.ca, "memcached-ca", "", "`file` of the authorities that the servers' certificates come from, PEM; none: the system's")
	flags.StringVar(&s.cert, "memcached-cert", "", "`file` of the certificate that is shown to the servers, PEM")
	flags.StringVar(&s.key, "memcached-key", "", "`file` of its private key, PEM")
	flags.StringVar(&s.serverName, "memcached-server-name", "", "`name` that all servers' certificates are for; none: each for its host")
}

// check finds flags that make no sense together.
func (s security) check(servers fleetServers) error {
	for _, of := range []struct{ flag, value string }{
		{"-memcached-ca", s.ca}, {"-memcached-cert", s.cert}, {"-memcached-key", s.key}, {"-memcached-server-name", s.serverName},
	} {
		if of.value != "" && !s.tls {
			return usageError(of.flag + ": -memcached-tls is not set")
		}
	}
	switch {
	case s.tls && servers.none():
		return usageError("-memcached-tls: no server is named")
	case s.auth != "" && servers.none():
		return usageError("-memcached-auth: no server is named")
	case s.tls && !servers.overNetwork():
		return usageError("-memcached-tls: there is no TLS to sockets, and no other server is named")
	case s.auth != "" && servers.byEndpoint():
		return usageError("-memcached-auth: the endpoint of aws: is told no password: name the servers in another way")
	case s.cert != "" && s.key == "":
		return usageError("-memcached-cert: its -memcached-key is not named")
	case s.key != "" && s.cert == "":
		return usageError("-memcached-key: its -memcached-cert is not named")
	}
	return nil
}

// overNetwork reports whether a server is not a socket.
func (s fleetServers) overNetwork() bool {
	if s.file != "" {
		return true // by what it names later, perhaps
	}
	for _, name := range s.named {
		if !strings.Contains(name, "/") {
			return true
		}
	}
	return false
}

// apply sets what connections are opened with. The files are read for each: what is
// renewed in them takes effect on the connections opened after.
func (s security) apply(config *memcache.Config) {
	if s.tls {
		config.TLS = s.readTLS
	}
	if s.auth != "" {
		config.Credentials = func() (memcache.Credentials, error) { return memcache.ReadCredentials(s.auth) }
	}
}

// secure has a cluster's endpoint be asked as its nodes are, and these be named by what their
// certificates are for. A file that cannot be read now ends the start, as one of the servers'
// does.
func (s security) secure(source discovery.Source) error {
	cluster, ok := source.(*discovery.Cluster)
	if !ok || !s.tls {
		return nil
	}
	if err := s.checkSecrets(); err != nil {
		return err
	}
	if _, err := s.readTLS(); err != nil {
		return fmt.Errorf("TLS: %w", err)
	}
	cluster.Dial, cluster.ByHost = memcache.Config{TLS: s.readTLS}.Dial, true
	return nil
}

// checkSecrets finds files of secrets that cannot be opened.
func (s security) checkSecrets() error {
	return errors.Join(checkSecret("-memcached-auth", s.auth), checkKey("-memcached-key", s.key))
}

func (s security) readTLS() (config *tls.Config, err error) {
	config = &tls.Config{ServerName: s.serverName, MinVersion: tls.VersionTLS12}
	if s.ca != "" {
		if config.RootCAs, err = authorities.Read(s.ca); err != nil {
			return nil, err
		}
	}
	if s.cert != "" {
		certificate, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return nil, fmt.Errorf("%s with %s: %w", s.cert, s.key, err)
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}

// warn says where secrets lie or go open.
func (s security) warn(servers []string, log *slog.Logger) {
	warnOpen(log, s.key)
	warnOpen(log, s.auth)
	if s.auth == "" || s.tls {
		return
	}
	for _, name := range servers {
		if host, _, err := net.SplitHostPort(name); err == nil && !strings.Contains(name, "/") && !isLoopback(host) {
			log.Warn("the password goes to a memcached server unencrypted: -memcached-tls is not set", "server", name)
		}
	}
}

func isLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
