package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

var errNoCertificate = errors.New("the file holds no certificate")

// certificates holds what TLS is served with, in memory: no handshake reads a file.
type certificates struct {
	*follower
	inForce atomic.Pointer[served]
}

// served is what TLS is served with.
type served struct {
	clients, admin *tls.Config
	expires        time.Time     // the first of the certificates to do so
	lifetime       time.Duration // of that one, from its beginning
}

func openCertificates(a access, log *slog.Logger) (c *certificates, err error) {
	c = &certificates{}
	paths := []string{a.cert, a.key}
	if a.clientCA != "" {
		paths = append(paths, a.clientCA)
	}
	c.follower, err = follow("certificates", paths, func(contents [][]byte) ([]any, error) {
		var authorities []byte
		if a.clientCA != "" {
			authorities = contents[2]
		}
		found, err := parseServed(contents[0], contents[1], authorities, time.Now())
		if errors.Is(err, errNoCertificate) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", a.clientCA)
		}
		if err != nil {
			return nil, err
		}
		c.inForce.Store(found)
		return []any{"expires", found.expires.UTC()}, nil
	}, log)
	if err != nil {
		return nil, fmt.Errorf("-tls-cert, -tls-key or -tls-client-ca: %w", err)
	}
	return c, nil
}

// clients and admin return what listeners are served with: each handshake takes what is
// in force.
func (c *certificates) clients() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return c.inForce.Load().clients, nil
	}}
}

func (c *certificates) admin() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return c.inForce.Load().admin, nil
	}}
}

func lifetimeOf(c *x509.Certificate) time.Duration { return c.NotAfter.Sub(c.NotBefore) }

// parseServed reads a certificate and its key, and the authorities of clients, if any,
// all in PEM. A certificate that has expired would be good for nobody.
func parseServed(cert, key, authorities []byte, now time.Time) (*served, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	s := &served{expires: pair.Leaf.NotAfter, lifetime: lifetimeOf(pair.Leaf)}
	for _, der := range pair.Certificate[1:] {
		between, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		if between.NotAfter.Before(s.expires) {
			s.expires, s.lifetime = between.NotAfter, lifetimeOf(between)
		}
	}
	if now.After(s.expires) {
		return nil, fmt.Errorf("the certificate expired at %s", s.expires.UTC().Format(time.RFC3339))
	}
	s.admin = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}
	s.clients = s.admin.Clone()
	if authorities == nil {
		return s, nil
	}
	s.clients.ClientAuth = tls.RequireAndVerifyClientCert
	s.clients.ClientCAs = x509.NewCertPool()
	if !s.clients.ClientCAs.AppendCertsFromPEM(authorities) {
		return nil, errNoCertificate
	}
	return s, nil
}
