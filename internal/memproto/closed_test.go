//go:build unix

package memproto

import (
	"crypto/tls"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// What TLS sends of its own, session tickets above all, does not mean that a connection
// is closed; its end does, before the connection itself is.
func TestATicketIsNoEnd(t *testing.T) {
	authority := memcachedtest.NewAuthority(t)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer listener.Close()
			client := authority.Client()
			client.ClientSessionCache = tls.NewLRUClientSessionCache(0)
			outer, err := net.Dial("tcp", listener.Addr().String())
			require.NoError(t, err)
			defer outer.Close()
			inner, err := listener.Accept()
			require.NoError(t, err)
			defer inner.Close()
			require.NoError(t, outer.SetDeadline(time.Now().Add(20*time.Second)))
			server := tls.Server(inner, &tls.Config{
				Certificates: []tls.Certificate{authority.Issue(t).Certificate}, MinVersion: version, MaxVersion: version,
				ClientAuth: tls.RequestClientCert, // so that the ticket comes after the handshake
			})
			shaken := make(chan error, 1)
			go func() { shaken <- server.Handshake() }()
			conn := tunnel{tls.Client(outer, client)}
			require.NoError(t, conn.Handshake())
			require.NoError(t, <-shaken)

			raw, records := control(conn)
			require.True(t, records)
			if version == tls.VersionTLS13 {
				awaitBytes(t, raw)
			}
			assert.False(t, closedRaw(raw, records), "a ticket, or nothing")
			assert.Equal(t, version == tls.VersionTLS13, closedRaw(raw, false), "without TLS unsolicited bytes")

			_, err = server.Write([]byte("x"))
			require.NoError(t, err)
			_, err = conn.Read(make([]byte, 8))
			require.NoError(t, err, "the ticket is read before")
			assert.False(t, closedRaw(raw, records))
			require.NoError(t, server.CloseWrite())
			awaitBytes(t, raw)
			assert.True(t, closedRaw(raw, records))
			_, err = conn.Read(make([]byte, 8))
			require.Error(t, err)
			inner.Close()
			awaitBytes(t, raw)
			assert.True(t, closedRaw(raw, records))
		})
	}
}

// awaitBytes waits until there are bytes to be read, or their end, and reads none.
func awaitBytes(t *testing.T, raw syscall.RawConn) {
	t.Helper()
	require.NoError(t, raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return err != syscall.EAGAIN
	}))
}
