package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/internal/server/follow"
	"github.com/counterd/counterd/internal/settings"
)

var errNoCertificate = errors.New("the file holds no certificate")

// certificates holds the configuration of TLS in memory: no handshake reads a file.
type certificates struct {
	*follow.Files
	inForce atomic.Pointer[identity]
}

// identity is the configuration of TLS for both addresses.
type identity struct {
	clients, admin *tls.Config
	expires        time.Time     // the first of the certificates to expire
	lifetime       time.Duration // of that one, from its beginning
}

func openCertificates(s Settings) (c *certificates, err error) {
	c = &certificates{}
	paths := []string{s.TLSCert, s.TLSKey}
	if s.TLSClientCA != "" {
		paths = append(paths, s.TLSClientCA)
	}
	c.Files, err = follow.Open("certificates", paths, func(files []follow.File) ([]any, error) {
		var authorities []byte
		if s.TLSClientCA != "" {
			authorities = files[2].Data
		}
		found, err := parseIdentity(files[0].Data, files[1].Data, authorities, time.Now())
		if errors.Is(err, errNoCertificate) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", s.TLSClientCA)
		}
		if err != nil {
			return nil, err
		}
		c.inForce.Store(found)
		return []any{"expires", found.expires.UTC()}, nil
	}, s.Log)
	if err != nil {
		return nil, &settings.Fault{Reason: "{tls-cert}, {tls-key} or {tls-client-ca}", Cause: err}
	}
	return c, nil
}

// clients and admin return the configurations of the listeners: each handshake takes the one in
// force.
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

// own returns the certificate in force.
func (c *certificates) own() *tls.Certificate { return &c.inForce.Load().admin.Certificates[0] }

func lifetimeOf(c *x509.Certificate) time.Duration { return c.NotAfter.Sub(c.NotBefore) }

// parseIdentity reads a certificate and its key, and the authorities of clients, if any, all in
// PEM. An expired certificate is an error: no client would accept it.
func parseIdentity(cert, key, authorities []byte, now time.Time) (*identity, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	s := &identity{expires: pair.Leaf.NotAfter, lifetime: lifetimeOf(pair.Leaf)}
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
