package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// outOfDate makes a certificate one that has expired.
func outOfDate(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
}

// onlyServer makes it one that clients may not show.
func onlyServer(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }

// secure returns a client of the process over TLS.
func (p *process) secure(t *testing.T, config *tls.Config) *client.Client {
	t.Helper()
	return newClient(t, client.Config{URL: p.secureURL(), TLS: config})
}

// secureURL returns the URL of the process over TLS.
func (p *process) secureURL() string { return strings.Replace(p.url, "http:", "https:", 1) }

// handshake returns the connection that a client gets, or why it gets none.
func (p *process) handshake(t *testing.T, config *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	dialer := tls.Dialer{Config: config}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer conn.Close()
	// Whether a client's certificate is taken shows with the first answer. Over HTTP/2 that is
	// to an empty frame of settings.
	state := conn.(*tls.Conn).ConnectionState()
	if state.NegotiatedProtocol == "h2" {
		if _, err := fmt.Fprint(conn, http2.ClientPreface); err != nil {
			return tls.ConnectionState{}, err
		}
		if err := http2.NewFramer(conn, nil).WriteSettings(); err != nil {
			return tls.ConnectionState{}, err
		}
	} else if _, err := fmt.Fprint(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		return tls.ConnectionState{}, err
	}
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return tls.ConnectionState{}, err
	}
	return state, nil
}

// pair is a certificate and its key where a process looks for them.
type pair struct{ cert, key string }

func newPair(t *testing.T, id *memcachedtest.Identity) pair {
	t.Helper()
	dir := t.TempDir()
	p := pair{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	p.writeCert(t, id)
	p.writeKey(t, id)
	return p
}

func (p pair) writeCert(t *testing.T, id *memcachedtest.Identity) {
	t.Helper()
	copyOver(t, id.CertFile, p.cert)
}

func (p pair) writeKey(t *testing.T, id *memcachedtest.Identity) {
	t.Helper()
	copyOver(t, id.KeyFile, p.key)
}

func copyOver(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	require.NoError(t, err)
	testkit.ReplaceFile(t, to, string(text))
}

// TLS is served to clients that trust its authority, in versions from 1.2, with HTTP/2 where a
// client knows it; and no request without TLS.
func TestTLSIsServed(t *testing.T) {
	authority := memcachedtest.NewAuthority(t)
	files := newPair(t, authority.Issue(t))
	p := startProcess(t, "-tls-cert", files.cert, "-tls-key", files.key)
	d, err := p.secure(t, authority.Client()).Hit(t.Context(), "url_shorten", visitor, 1)
	require.NoError(t, err)
	assert.True(t, d.Allowed)
	_, err = p.secure(t, memcachedtest.NewAuthority(t).Client()).Hit(t.Context(), "url_shorten", visitor, 1)
	require.ErrorContains(t, err, "unknown authority")
	_, err = p.secure(t, nil).Hit(t.Context(), "url_shorten", visitor, 1)
	require.ErrorContains(t, err, "unknown authority")
	assert.Equal(t, http.StatusBadRequest, status(t, p.url+"/healthz"), "not without TLS")

	for _, test := range []struct {
		offer   []string
		version uint16
		want    string
	}{{nil, tls.VersionTLS13, ""}, {[]string{"h2", "http/1.1"}, tls.VersionTLS12, "h2"}, {[]string{"http/1.1"}, tls.VersionTLS13, "http/1.1"}} {
		config := authority.Client()
		config.NextProtos, config.MaxVersion = test.offer, test.version
		state, err := p.handshake(t, config)
		require.NoError(t, err)
		assert.Equal(t, test.want, state.NegotiatedProtocol)
		assert.Equal(t, test.version, state.Version)
	}
	old := authority.Client()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	_, err = p.handshake(t, old)
	require.Error(t, err)
	p.logged(t, `TLS handshake error`)
	assert.NotRegexp(t, `TLS handshake error[^\n]*127\.0\.0\.1`, p.log.String(), "who it was may be a feature")
}

// A client without a certificate of the authority in force makes no request: neither with none,
// nor with one of another authority, nor with one of the authority before.
func TestClientsHaveToShowCertificates(t *testing.T) {
	authority, stranger := memcachedtest.NewAuthority(t), memcachedtest.NewAuthority(t)
	clientCA := filepath.Join(t.TempDir(), "ca.pem")
	copyOver(t, authority.File, clientCA)
	files := newPair(t, authority.Issue(t))
	p := startProcess(t, "-tls-cert", files.cert, "-tls-key", files.key, "-tls-client-ca", clientCA, "-admin", "127.0.0.1:0")
	for name, config := range map[string]*tls.Config{
		"none":           authority.Client(),
		"of a stranger":  authority.Client(stranger.Issue(t)),
		"expired":        authority.Client(authority.Issue(t, outOfDate)),
		"not a client's": authority.Client(authority.Issue(t, onlyServer)),
	} {
		// What it has is shown, whichever authorities the server names.
		if len(config.Certificates) > 0 {
			shown := config.Certificates[0]
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil }
		}
		_, err := p.secure(t, config).Increment(t.Context(), "url_shorten", visitor, 1, time.Time{})
		require.ErrorIs(t, err, client.ErrUnavailable, name)
		_, err = p.handshake(t, config)
		require.Error(t, err, name)
	}
	good := authority.Client(authority.Issue(t))
	good.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	count, err := p.secure(t, good).Count(t.Context(), "url_shorten", visitor, time.Hour, time.Time{})
	require.NoError(t, err)
	assert.Zero(t, count.Count, "nothing was counted")
	_, err = p.secure(t, good).Increment(t.Context(), "url_shorten", visitor, 1, time.Time{})
	require.NoError(t, err)

	// Probes and scrapers have none.
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		exit, _, said := probed(t, "-ca", authority.File, strings.Replace(p.admin(t), "http:", "https:", 1)+path)
		assert.Equal(t, exitOK, exit, "%s: %s", path, said)
	}

	copyOver(t, stranger.File, clientCA)
	p.logged(t, `msg="certificates reloaded"`)
	_, err = p.handshake(t, good)
	require.Error(t, err)
	shows := authority.Client(stranger.Issue(t))
	_, err = p.secure(t, shows).Increment(t.Context(), "url_shorten", visitor, 1, time.Time{})
	require.NoError(t, err)
}

// A certificate is renewed under load, on connections that are kept and on new ones: no request fails, also while the
// certificate is there and its key is not yet, and with a renewal that has expired.
func TestCertificatesAreRenewedUnderLoad(t *testing.T) {
	authority := memcachedtest.NewAuthority(t)
	first, second := authority.Issue(t), authority.Issue(t)
	files := newPair(t, first)
	p := startProcess(t, "-tls-cert", files.cert, "-tls-key", files.key)
	var callers []func() error
	for i := range 4 {
		transport := &http.Transport{TLSClientConfig: authority.Client(), DisableKeepAlives: i%2 == 0, ForceAttemptHTTP2: i > 1}
		t.Cleanup(transport.CloseIdleConnections)
		c := newClient(t, client.Config{URL: p.secureURL(), Transport: transport})
		callers = append(callers, func() error {
			_, err := c.Check(t.Context(), "url_shorten", visitor, 1)
			return err
		})
	}
	l := startLoad(t, callers...)
	inForce := func(id *memcachedtest.Identity) {
		t.Helper()
		l.more(10)
		state, err := p.handshake(t, authority.Client())
		require.NoError(t, err)
		assert.Equal(t, id.Leaf.SerialNumber, state.PeerCertificates[0].SerialNumber)
	}
	inForce(first)
	files.writeCert(t, second)
	p.logged(t, `level=ERROR msg="certificates not reloaded, those in force stay"[^\n]* failures=1 `)
	inForce(first)
	files.writeKey(t, second)
	p.logged(t, `msg="certificates reloaded"[^\n]* expires=`)
	inForce(second)
	expired := authority.Issue(t, outOfDate)
	files.writeCert(t, expired)
	files.writeKey(t, expired)
	p.logged(t, `certificates not reloaded[^\n]* error="the certificate expired`)
	inForce(second)
	l.stop()
	assert.NotContains(t, p.log.String(), "PRIVATE")
}
