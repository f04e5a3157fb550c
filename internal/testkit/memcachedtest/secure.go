package memcachedtest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Security is what a server demands of those who connect.
type Security struct {
	Authority      *Authority // issues the server's certificate; nil: no TLS
	Certificate    *Identity  // the server's; nil: one that is good for 127.0.0.1
	WantsClient    bool       // clients need a certificate of the authority
	User, Password string     // no user: none is demanded
}

// StartSecure runs a server on a free loopback port until the test ends. Further
// arguments go to memcached.
func StartSecure(tb testing.TB, demands Security, args ...string) *Server {
	tb.Helper()
	s := &Server{tb: tb, security: demands}
	if demands.Authority != nil {
		if s.security.Certificate == nil {
			s.security.Certificate = demands.Authority.Issue(tb)
		}
		s.client = demands.Authority.Client(demands.Authority.Issue(tb))
		options := fmt.Sprintf("ssl_chain_cert=%s,ssl_key=%s", s.security.Certificate.CertFile, s.security.Certificate.KeyFile)
		if demands.WantsClient {
			options += fmt.Sprintf(",ssl_ca_cert=%s,ssl_verify_mode=2", demands.Authority.File)
		}
		args = append(args, "-Z", "-o", options)
	}
	if demands.User != "" {
		s.AuthFile = filepath.Join(tb.TempDir(), "users")
		s.SetUsers(demands.User + ":" + demands.Password)
		args = append(args, "-Y", s.AuthFile)
	}
	// The files are this user's own, and are read again by the server.
	return s.start(append(args, "-u", "root"))
}

// SetUsers writes the file of users, user:password each, that the server reads when it
// starts.
func (s *Server) SetUsers(users ...string) {
	s.tb.Helper()
	var lines bytes.Buffer
	for _, user := range users {
		fmt.Fprintln(&lines, user)
	}
	if err := os.WriteFile(s.AuthFile, lines.Bytes(), 0o600); err != nil {
		s.tb.Fatal(err)
	}
}

// dial opens a connection that the server takes commands on.
func (s *Server) dial() (net.Conn, error) {
	conn, err := net.DialTimeout(s.network(), s.Addr, startTimeout)
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(startTimeout))
	if s.client != nil {
		conn = tls.Client(conn, s.client)
	}
	if user := s.security.User; user != "" {
		token := user + " " + s.security.Password
		answer := make([]byte, len("STORED\r\n"))
		fmt.Fprintf(conn, "set user 0 0 %d\r\n%s\r\n", len(token), token)
		if n, err := conn.Read(answer); err != nil || string(answer) != "STORED\r\n" {
			conn.Close()
			return nil, fmt.Errorf("the server did not take the user: %q, %w", answer[:n], err)
		}
	}
	return conn, nil
}

// Authority issues certificates for a test.
type Authority struct {
	Pool *x509.CertPool
	File string // its own certificate, PEM

	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// Identity is a certificate with its key, in memory and in two PEM files.
type Identity struct {
	tls.Certificate
	CertFile, KeyFile string
}

// NewAuthority returns a new one.
func NewAuthority(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{Pool: x509.NewCertPool(), certificate: &x509.Certificate{
		Subject: pkix.Name{CommonName: "counterd test authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	id := a.issue(tb, a.certificate)
	a.certificate, a.key, a.File = id.Leaf, id.PrivateKey.(*ecdsa.PrivateKey), id.CertFile
	a.Pool.AddCert(id.Leaf)
	return a
}

// Issue returns a certificate for 127.0.0.1, localhost and clients, unless change makes
// it another one.
func (a *Authority) Issue(tb testing.TB, change ...func(*x509.Certificate)) *Identity {
	tb.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "counterd test"}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, f := range change {
		f(template)
	}
	return a.issue(tb, template)
}

// Client returns what a client needs that trusts the authority, and shows these
// certificates.
func (a *Authority) Client(shows ...*Identity) *tls.Config {
	config := &tls.Config{RootCAs: a.Pool, ServerName: "127.0.0.1"}
	for _, id := range shows {
		config.Certificates = append(config.Certificates, id.Certificate)
	}
	return config
}

func (a *Authority) issue(tb testing.TB, template *x509.Certificate) *Identity {
	tb.Helper()
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatalf("memcachedtest: %v", err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	must(err)
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	signer := a.key
	if signer == nil {
		signer = key // its own
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, signer)
	must(err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	dir, err := os.MkdirTemp("", "counterd") // without a comma: memcached takes options apart there
	must(err)
	tb.Cleanup(func() { os.RemoveAll(dir) })
	id := &Identity{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	must(os.WriteFile(id.CertFile, certPEM, 0o600))
	must(os.WriteFile(id.KeyFile, keyPEM, 0o600))
	id.Certificate, err = tls.X509KeyPair(certPEM, keyPEM)
	must(err)
	return id
}
