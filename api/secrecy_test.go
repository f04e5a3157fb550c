package api_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/httpdecision"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/markedtest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// faulty panics with what it is given. It has an address for an argument, as a number: an
// array goes on the stack, where a trace shows it.
//
//go:noinline
func faulty(address [2]uint32, with any) *events.Rules {
	if address[1] != 0 {
		panic(with)
	}
	return nil
}

// numberOf returns an IPv4 address as a number.
func numberOf(address string) [2]uint32 {
	bytes := netip.MustParseAddr(address).As4()
	return [2]uint32{0, binary.BigEndian.Uint32(bytes[:])}
}

// Whatever is panicked with, and whatever the stack holds: the log says where it was.
func TestPanicsNameNobody(t *testing.T) {
	var marks markedtest.Marks
	address, word := marks.Address(), marks.Word()
	for _, with := range []any{word, fmt.Errorf("an error: %s", address), errors.New(word), []string{word}, struct{ Address string }{address}, &word} {
		var log bytes.Buffer
		h := broken(&log, func() *events.Rules { return faulty(numberOf(address), with) })
		problem(t, request(t, h, word, "/v1/authorize/e?"+word, `{"features": {"ip": "`+address+`"}}`), 500)
		assert.Contains(t, log.String(), "method=other")
		assert.Contains(t, log.String(), "secrecy_test.go", "where it was")
		marks.Absent(t, fmt.Sprintf("the log of a panic with a %T", with), log.String())
	}
}

// Nor does it say more of a handler that net/http has to catch.
func TestPanicsThatReachTheServer(t *testing.T) {
	var marks markedtest.Marks
	word := marks.Word()
	log := &testkit.Log{}
	serve(t, log, nil, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		panic(r.URL.RawQuery + "\n\t/" + word + ".go:1")
	}), func(address string) {
		conn := callFrom(t, marks.Loopback(), address)
		fmt.Fprintf(conn, "GET /?%s HTTP/1.1\r\nHost: %s\r\n\r\n", word, word)
		io.Copy(io.Discard, conn)
		log.Await(t, "http: panic")
		assert.Contains(t, log.String(), "secrecy_test.go:")
	})
	marks.Absent(t, "the log", log.String())
}

// serve serves until the function has returned.
func serve(t *testing.T, log io.Writer, config *tls.Config, h http.Handler, use func(address string)) {
	t.Helper()
	leaktest.Check(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	server := api.NewServer(h, slog.New(slog.NewTextHandler(log, nil)))
	if config != nil {
		server.TLSConfig = config
	}
	served := make(chan error, 1)
	go func() {
		if config != nil {
			served <- server.ServeTLS(listener, "", "")
			return
		}
		served <- server.Serve(listener)
	}()
	use(address)
	require.NoError(t, server.Close())
	require.ErrorIs(t, <-served, http.ErrServerClosed)
}

// callFrom opens a connection from an address of this machine.
func callFrom(t *testing.T, from, to string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.Dial("tcp", to)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Handshakes that fail, each for a reason of its own, and what HTTP/2 has to say.
func TestHandshakesNameNobody(t *testing.T) {
	authority := memcachedtest.NewAuthority(t)
	certificate := authority.Issue(t).Certificate
	theirs := memcachedtest.NewAuthority(t).Issue(t)
	var marks markedtest.Marks
	word, peer := marks.Word(), marks.Loopback()
	tried := map[string]func(conn net.Conn){
		"first record does not look like a TLS handshake": func(conn net.Conn) { io.WriteString(conn, word+word) },
		"client sent an HTTP request to an HTTPS server":  func(conn net.Conn) { io.WriteString(conn, "GET /"+word+" HTTP/1.1\r\n\r\n") },
		"EOF":                      func(conn net.Conn) { conn.(*net.TCPConn).CloseWrite() },
		"connection reset by peer": func(conn net.Conn) { conn.(*net.TCPConn).SetLinger(0); conn.Close() },
		"remote error: tls: bad certificate": func(conn net.Conn) {
			tls.Client(conn, &tls.Config{ServerName: word + ".example", VerifyConnection: func(tls.ConnectionState) error { return errors.New(word) }, InsecureSkipVerify: true}).Handshake()
		},
		"client requested unsupported application protocols": func(conn net.Conn) {
			tls.Client(conn, &tls.Config{ServerName: word, InsecureSkipVerify: true, NextProtos: []string{word}}).Handshake()
		},
		"client offered only unsupported versions": func(conn net.Conn) {
			tls.Client(conn, &tls.Config{ServerName: word, InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}).Handshake()
		},
		"client didn't provide a certificate": func(conn net.Conn) {
			client := tls.Client(conn, &tls.Config{ServerName: word, InsecureSkipVerify: true})
			if client.Handshake() == nil {
				client.Read(make([]byte, 1))
			}
		},
		"certificate signed by unknown authority": func(conn net.Conn) {
			client := tls.Client(conn, &tls.Config{ServerName: word, InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &theirs.Certificate, nil }})
			if client.Handshake() == nil {
				client.Read(make([]byte, 1))
			}
		},
	}
	for says, try := range tried {
		log := &testkit.Log{}
		config := &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority.Pool}
		serve(t, log, config, http.NotFoundHandler(), func(address string) {
			conn := callFrom(t, peer, address)
			try(conn)
			log.Await(t, "http: TLS handshake error: "+says)
		})
		marks.Absent(t, "the log of "+says, log.String())
	}

	log := &testkit.Log{}
	serve(t, log, &tls.Config{Certificates: []tls.Certificate{certificate}}, http.NotFoundHandler(), func(address string) {
		conn := tls.Client(callFrom(t, peer, address), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		require.NoError(t, conn.Handshake())
		io.WriteString(conn, word+strings.Repeat(word, 10))
		io.Copy(io.Discard, conn)
		log.Await(t, "http2: server: error reading preface from client")
	})
	marks.Absent(t, "the log of HTTP/2", log.String())
}

// A middleware whose event is made of the request does not say what it made.
func TestEventsMadeOfRequestsAreNotLogged(t *testing.T) {
	var marks markedtest.Marks
	g := newGate(t, "events: {e: {limits: [{per: ip, rate: 1/d}]}}", func(c *httpdecision.MiddlewareConfig) {
		c.Event, c.EventOf = "", func(r *http.Request) string { return strings.Trim(r.URL.Path, "/") }
	})
	assert.Equal(t, 500, request(t, g, "GET", "/"+marks.Word(), "").Code)
	assert.Contains(t, g.log.String(), "EventOf")
	marks.Absent(t, "the log", g.log.String())
}
