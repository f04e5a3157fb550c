package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// keep opens a connection to the process that has been answered and is idle.
func (p *process) keep(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode)
	return conn
}

// A process keeps to the number of connections that it is given: idle ones make room, and those that end leave nothing.
func TestMaxConnections(t *testing.T) {
	p := startProcess(t, "-max-connections", "20")
	before := p.metric(t, "go_goroutines")
	var all []net.Conn
	for range 100 {
		all = append(all, p.keep(t))
	}
	assert.LessOrEqual(t, p.metric(t, "counterd_connections"), 20)
	assert.Zero(t, p.metric(t, "counterd_connections_refused_total"))
	for _, conn := range all {
		require.NoError(t, conn.Close())
	}
	testkit.Await(t, soon, "nothing is left of closed connections", func() bool {
		return p.metric(t, "counterd_connections") <= 3 && p.metric(t, "go_goroutines") <= before+3
	})
}

// One connection over HTTP/2 brings no more requests at a time than -max-connections would.
func TestRequestsOverOneConnectionAreBounded(t *testing.T) {
	authority := memcachedtest.NewAuthority(t)
	id := authority.Issue(t)
	server := memcachedtest.Start(t)
	p := startProcess(t, "-memcached", server.Addr, "-timeout", "500ms", "-tls-cert", id.CertFile, "-tls-key", id.KeyFile, "-max-connections", "1")
	transport := &http.Transport{TLSClientConfig: authority.Client(), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	c := http.Client{Transport: transport}
	response, err := c.Get(p.secureURL() + "/healthz")
	require.NoError(t, err)
	response.Body.Close()
	require.Equal(t, "HTTP/2.0", response.Proto)

	server.Pause()
	defer server.Resume()
	var busy atomic.Int64
	var asking sync.WaitGroup
	for range 3 {
		asking.Go(func() {
			response, err := c.Get(p.secureURL() + "/v1/events/url_shorten/count?window=1m&feature=ip:203.0.113.9")
			if !assert.NoError(t, err) {
				return
			}
			response.Body.Close()
			if response.StatusCode == 503 && response.Header.Get("Retry-After") == "1" {
				busy.Add(1)
			}
		})
	}
	asking.Wait()
	assert.EqualValues(t, 2, busy.Load(), "one waits for the store")
}
