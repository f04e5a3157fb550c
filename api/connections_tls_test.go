package api_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// secureClients starts a server over TLS. It returns what makes a client of it whose
// connections are its own, over HTTP/2 or not.
func secureClients(t *testing.T, h http.Handler, most int, changes ...func(*http.Server)) (c *clients, newClient func(two bool) *http.Client) {
	authority := memcachedtest.NewAuthority(t)
	c = newClientsOver(t, h, most, serverTLS(t, authority), changes...)
	return c, func(two bool) *http.Client {
		transport := &http.Transport{TLSClientConfig: authority.Client(), ForceAttemptHTTP2: two}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport, Timeout: longest}
	}
}

// securePipes starts a server over TLS whose connections are pipes, and returns a client over HTTP/2.
func securePipes(t *testing.T, change func(*http.Server)) (c *clients, client *http.Client) {
	authority := memcachedtest.NewAuthority(t)
	c = newPipedClients(t, nil, serverTLS(t, authority), change)
	transport := &http.Transport{TLSClientConfig: authority.Client(), ForceAttemptHTTP2: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return c.connect() }}
	t.Cleanup(transport.CloseIdleConnections)
	return c, &http.Client{Transport: transport}
}

func serverTLS(t *testing.T, authority *memcachedtest.Authority) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{authority.Issue(t).Certificate}}
}

// address returns the URL of the server, by the name in its certificate.
func (c *clients) address() string {
	if of, ok := c.listener.Addr().(*net.TCPAddr); ok && of.Port != 0 {
		return "https://" + of.String()
	}
	return "https://127.0.0.1"
}

// get returns the status and the protocol of an answer.
func (c *clients) get(client *http.Client, path string) (int, string, error) {
	response, err := client.Get(c.address() + path)
	if err != nil {
		return 0, "", err
	}
	_, err = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	return response.StatusCode, response.Proto, err
}

// Over TLS, too, the server knows which connections are idle, and closes one for a new one.
func TestIdleTLSConnectionsMakeRoom(t *testing.T) {
	for proto, two := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(proto, func(t *testing.T) {
			const most = 5
			c, newClient := secureClients(t, nil, most)
			for range 4 * most {
				status, spoken, err := c.get(newClient(two), "/healthz")
				require.NoError(t, err)
				require.Equal(t, 200, status)
				require.Equal(t, proto, spoken)
				require.LessOrEqual(t, c.listener.Open(), most)
			}
			assert.Zero(t, c.listener.Refused())
		})
	}
}

// A connection over HTTP/2 is not idle while one of its requests is being answered.
func TestABusyConnectionIsLeftAlone(t *testing.T) {
	h, arrived, release := newBusy(t)
	c, newClient := secureClients(t, h, 1)
	busy := newClient(true)
	answered := make(chan int, 1)
	go func() {
		status, _, err := c.get(busy, "/metrics")
		assert.NoError(t, err)
		answered <- status
	}()
	<-arrived
	// Another request, over the same connection, does not make it idle either.
	status, proto, err := c.get(busy, "/v1/events")
	require.NoError(t, err)
	require.Equal(t, 200, status)
	require.Equal(t, "HTTP/2.0", proto)
	_, _, err = c.get(newClient(true), "/v1/events")
	require.Error(t, err)
	assert.EqualValues(t, 1, c.listener.Refused())
	close(release)
	assert.Equal(t, 200, <-answered)
}

// A client that does not begin with the handshake, or does not end it, keeps no other out,
// and is shut out. Where there is no room, the connection is closed without an answer: the
// client could not read it.
func TestSlowHandshakes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const slow = 20
		c, client := securePipes(t, func(s *http.Server) { s.ReadHeaderTimeout = 5 * time.Second })
		var waiting []*rawConn
		for i := range slow {
			conn := c.dial()
			if i%2 == 0 {
				_, err := io.WriteString(conn, "\x16\x03\x01\x02\x00\x01")
				require.NoError(t, err)
			}
			waiting = append(waiting, conn)
		}
		synctest.Wait()
		require.Equal(t, slow, c.listener.Open())
		status, _, err := c.get(client, "/healthz")
		require.NoError(t, err)
		assert.Equal(t, 200, status)
		for _, conn := range waiting {
			_, err := conn.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
		}
	})
}

func TestRefusedTLSConnections(t *testing.T) {
	h, arrived, release := newBusy(t)
	c, newClient := secureClients(t, h, 1)
	answered := make(chan int, 1)
	go func() {
		status, _, err := c.get(newClient(false), "/metrics")
		assert.NoError(t, err)
		answered <- status
	}()
	<-arrived
	said, err := io.ReadAll(c.dial())
	require.NoError(t, err)
	assert.Empty(t, string(said))
	assert.EqualValues(t, 1, c.listener.Refused())
	close(release)
	assert.Equal(t, 200, <-answered)
}

// Over HTTP/2 a body is bounded, and the time for it, as over HTTP/1.1.
func TestBodiesOverHTTP2(t *testing.T) {
	bubble.Test(t, requireBoundedBodies)
}

func requireBoundedBodies(t *testing.T) {
	c, client := securePipes(t, func(s *http.Server) { s.ReadTimeout = 5 * time.Second })
	post := func(body io.Reader) (int, error) {
		response, err := client.Post(c.address()+"/v1/events/plain/increment", "application/json", body)
		if err != nil {
			return 0, err
		}
		response.Body.Close()
		return response.StatusCode, nil
	}
	status, err := post(strings.NewReader(who))
	require.NoError(t, err)
	assert.Equal(t, 200, status)
	status, err = post(strings.NewReader(strings.Repeat(" ", 1<<20) + who))
	require.NoError(t, err)
	assert.Equal(t, 413, status)
	// It never comes: the server's timeout ends the wait, not the client's.
	never, writer := io.Pipe()
	defer writer.Close()
	status, err = post(never)
	assert.False(t, os.IsTimeout(err), "%v", err)
	assert.True(t, err != nil || status >= 400, "%d", status)
}
