package backend

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/counterd/counterd/internal/authorities"
	"github.com/counterd/counterd/internal/discovery"
	"github.com/counterd/counterd/internal/settings"
	"github.com/counterd/counterd/memcache"
)

// secure sets what connections are opened with. The files are read for each connection, so a
// renewed one takes effect on the connections opened after.
func secure(s settings.Settings, config *memcache.Config) {
	if s.MemcachedTLS {
		config.TLS = func() (*tls.Config, error) { return readTLS(s) }
	}
	if s.MemcachedAuth != "" {
		config.Credentials = func() (memcache.Credentials, error) { return memcache.ReadCredentials(s.MemcachedAuth) }
	}
}

// secureSource has a cluster's endpoint asked as its nodes are, and nodes named by the host that
// their certificates are for. As with servers, a file that cannot be read ends the start.
func secureSource(s settings.Settings, source discovery.Source) error {
	cluster, ok := source.(*discovery.Cluster)
	if !ok || !s.MemcachedTLS {
		return nil
	}
	if err := checkSecrets(s); err != nil {
		return err
	}
	if _, err := readTLS(s); err != nil {
		return fmt.Errorf("TLS: %w", err)
	}
	var config memcache.Config
	secure(settings.Settings{MemcachedTLS: true, MemcachedCA: s.MemcachedCA, MemcachedCert: s.MemcachedCert, MemcachedKey: s.MemcachedKey, MemcachedServerName: s.MemcachedServerName}, &config)
	cluster.Dial, cluster.ByHost = config.Dial, true
	return nil
}

// checkSecrets finds files with secrets that cannot be opened.
func checkSecrets(s settings.Settings) error {
	return errors.Join(settings.CheckSecret("memcached-auth", s.MemcachedAuth), settings.CheckKey("memcached-key", s.MemcachedKey))
}

func readTLS(s settings.Settings) (config *tls.Config, err error) {
	config = &tls.Config{ServerName: s.MemcachedServerName, MinVersion: tls.VersionTLS12}
	if s.MemcachedCA != "" {
		if config.RootCAs, err = authorities.Read(s.MemcachedCA); err != nil {
			return nil, err
		}
	}
	if s.MemcachedCert != "" {
		certificate, err := tls.LoadX509KeyPair(s.MemcachedCert, s.MemcachedKey)
		if err != nil {
			return nil, fmt.Errorf("%s with %s: %w", s.MemcachedCert, s.MemcachedKey, err)
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}

// warnOfOpenPassword names the servers that get the password unencrypted over a network.
func warnOfOpenPassword(s settings.Settings, servers []string) {
	if s.MemcachedAuth == "" || s.MemcachedTLS {
		return
	}
	for _, name := range servers {
		if _, _, err := net.SplitHostPort(name); err == nil && !strings.Contains(name, "/") && !settings.OnLoopback(name) {
			s.Log.Warn("the password goes to a memcached server unencrypted: TLS is not set", "server", name)
		}
	}
}
