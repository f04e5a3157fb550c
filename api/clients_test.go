package api_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/internal/connections"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/leaktest"
)

// clients are what talks to a real server, on real connections.
type clients struct {
	t        *testing.T
	server   *http.Server
	listener *connections.Listener
	connect  func() (net.Conn, error)
}

// longest is the wait for what has to come in the end.
const longest = 2 * time.Minute

// newClients starts a server, by default of all routes, for so many connections. It waits for
// slow clients for longer than a test takes.
func newClients(t *testing.T, h http.Handler, most int) *clients {
	return newClientsOver(t, h, most, nil)
}

// newClientsOver starts one that speaks TLS if secure is not nil. The server is changed before it starts.
func newClientsOver(t *testing.T, h http.Handler, most int, secure *tls.Config, changes ...func(*http.Server)) *clients {
	leaktest.Check(t)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := startClients(t, h, inner, most, secure, changes...)
	c.connect = func() (net.Conn, error) { return net.Dial("tcp", inner.Addr().String()) }
	return c
}

// newPipedClients starts a server whose connections are pipes. In a bubble its timeouts take no time.
func newPipedClients(t *testing.T, h http.Handler, secure *tls.Config, changes ...func(*http.Server)) *clients {
	inner := pipeListener{make(chan net.Conn), make(chan struct{})}
	c := startClients(t, h, inner, 0, secure, changes...)
	c.connect = func() (net.Conn, error) {
		mine, theirs := net.Pipe()
		inner.dialled <- pipe{theirs}
		return mine, nil
	}
	return c
}

// pipeListener accepts connections until it is closed.
type pipeListener struct {
	dialled chan net.Conn
	closed  chan struct{}
}

func (pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// pipe is a connection from this machine.
type pipe struct{ net.Conn }

func (pipe) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.dialled:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l pipeListener) Close() error {
	close(l.closed)
	return nil
}

// startClients serves the connections of a listener.
func startClients(t *testing.T, h http.Handler, inner net.Listener, most int, secure *tls.Config, changes ...func(*http.Server)) *clients {
	if h == nil {
		h = newServer()
	}
	c := &clients{t: t, server: api.NewServer(h, slog.New(slog.DiscardHandler)), listener: connections.NewListener(inner, most)}
	for _, timeout := range []*time.Duration{&c.server.ReadHeaderTimeout, &c.server.ReadTimeout, &c.server.WriteTimeout, &c.server.IdleTimeout} {
		require.GreaterOrEqual(t, *timeout, time.Second, "it is there")
	}
	c.server.ReadHeaderTimeout, c.server.ReadTimeout, c.server.WriteTimeout, c.server.IdleTimeout = 10*longest, 10*longest, 10*longest, 10*longest
	for _, change := range changes {
		change(c.server)
	}
	serve := func() error { return c.server.Serve(c.listener) }
	if secure != nil {
		c.listener.TLS, c.server.TLSConfig = true, secure
		serve = func() error { return c.server.ServeTLS(c.listener, "", "") }
	}
	served := make(chan error, 1)
	go func() { served <- serve() }()
	t.Cleanup(func() {
		assert.NoError(t, c.server.Close())
		assert.ErrorIs(t, <-served, http.ErrServerClosed)
		testkit.Await(t, longest, "the end of all connections", func() bool { return c.listener.Open() == 0 })
	})
	return c
}

// impatient has the server wait for slow clients for a few seconds.
func impatient(s *http.Server) {
	s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout = time.Second, 2*time.Second, 3*time.Second
}

// rawConn is a connection to the server.
type rawConn struct {
	net.Conn
	reader *bufio.Reader
}

func (c *clients) dial() *rawConn {
	conn, err := c.connect()
	require.NoError(c.t, err)
	c.t.Cleanup(func() { conn.Close() })
	require.NoError(c.t, conn.SetDeadline(time.Now().Add(longest)))
	return &rawConn{conn, bufio.NewReader(conn)}
}

const healthz = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"

// answered makes a request and reads the answer: the connection is idle then.
func (c *clients) answered(conn *rawConn) {
	c.t.Helper()
	_, err := io.WriteString(conn, healthz)
	require.NoError(c.t, err)
	response, err := http.ReadResponse(conn.reader, nil)
	require.NoError(c.t, err)
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(c.t, err)
	require.Equal(c.t, 200, response.StatusCode)
}

const postHit = "POST /v1/events/url_shorten/hit HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"

// statuses reads answers until the server closes the connection, and returns their
// statuses. An answer that is broken off has none.
func (c *clients) statuses(conn *rawConn) (list []int) {
	for {
		response, err := http.ReadResponse(conn.reader, nil)
		untilClosed := false // an answer of net/http itself ends with the connection, or a reset
		if err == nil {
			untilClosed = response.ContentLength < 0 && len(response.TransferEncoding) == 0
			_, err = io.Copy(io.Discard, response.Body)
		}
		if err == nil || untilClosed {
			list = append(list, response.StatusCode)
		}
		if err != nil {
			timeout, isTimeout := errors.AsType[net.Error](err)
			assert.False(c.t, isTimeout && timeout.Timeout(), "the server has not closed the connection: %v", list)
			return list
		}
	}
}

// drip writes the text byte by byte, until it cannot.
func drip(conn *rawConn, text string) {
	for i := range len(text) {
		if _, err := io.WriteString(conn, text[i:i+1]); err != nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// endless writes the text again and again, until it cannot.
func endless(conn *rawConn, text string) {
	for {
		if _, err := io.WriteString(conn, text); err != nil {
			return
		}
	}
}

// toldOff are the statuses for abusive clients. Which one it is depends on whether the
// time or the room is over first.
var toldOff = []int{400, 408, 413, 431}

// hostile are clients that mean no good: what they send, and with which statuses beside
// toldOff they may be answered. All of them are shut out in the end.
var hostile = map[string]struct {
	send func(*rawConn)
	want []int
}{
	"says nothing":        {func(*rawConn) {}, nil},
	"header byte by byte": {func(c *rawConn) { drip(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n"+strings.Repeat("A: b\r\n", 10_000)) }, nil},
	"headers without end": {func(c *rawConn) { io.WriteString(c, healthz[:20]); endless(c, "A: b\r\n") }, nil},
	"body byte by byte": {func(c *rawConn) {
		io.WriteString(c, postHit+"Content-Length: 100000\r\n\r\n")
		drip(c, strings.Repeat(" ", 100_000))
	}, nil},
	"chunks byte by byte": {func(c *rawConn) {
		io.WriteString(c, postHit+"Transfer-Encoding: chunked\r\n\r\n")
		drip(c, strings.Repeat("1\r\n \r\n", 100_000))
	}, nil},
	"chunks without end": {func(c *rawConn) {
		io.WriteString(c, postHit+"Transfer-Encoding: chunked\r\n\r\n")
		endless(c, "400\r\n"+strings.Repeat(" ", 1024)+"\r\n")
	}, nil},
	"an endless chunk size": {func(c *rawConn) {
		io.WriteString(c, postHit+"Transfer-Encoding: chunked\r\n\r\n")
		endless(c, strings.Repeat("0", 1024))
	}, nil},
	"trailers without end": {func(c *rawConn) {
		io.WriteString(c, postHit+"Transfer-Encoding: chunked\r\nTrailer: A\r\n\r\n0\r\n")
		endless(c, "A: b\r\n")
	}, []int{429, 200}},
	"a body that is never sent":  {func(c *rawConn) { io.WriteString(c, postHit+"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n") }, []int{100}},
	"a body cut short":           {func(c *rawConn) { io.WriteString(c, postHit+"Content-Length: 100\r\n\r\n{}") }, nil},
	"a body longer than is said": {func(c *rawConn) { io.WriteString(c, postHit+"Content-Length: 2\r\n\r\n{}"); endless(c, "{}") }, nil},
	"a large body, pipelined":    {func(c *rawConn) { endless(c, postHit+"Content-Length: 1048577\r\n\r\n"+strings.Repeat(" ", 1<<20+1)) }, nil},
	"never reads the answers": {func(c *rawConn) {
		endless(c, "GET /v1/events/plain/history?feature=user:42&level=second&from="+fmt.Sprint(now.Unix()-9_999)+" HTTP/1.1\r\nHost: x\r\n\r\n")
	}, []int{200, 503}},
	"not HTTP at all": {func(c *rawConn) {
		io.WriteString(c, "\x16\x03\x01\x00\xf4\x01\x00\x00\xf0\x03\x03")
		drip(c, "\r\n\r\n")
	}, nil},
}

// However clients misbehave, and many at once: others are answered meanwhile, they themselves are refused or shut out,
// and nothing is left of them.
func TestHostileClients(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		begin := time.Now()
		c := newPipedClients(t, nil, nil, impatient)
		ctx, stop := context.WithCancel(t.Context())
		var good, bad sync.WaitGroup
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return c.connect() }}
		defer transport.CloseIdleConnections()
		for range 4 {
			good.Go(func() {
				honest := http.Client{Transport: transport}
				for ctx.Err() == nil {
					response, err := honest.Post("http://pipe/v1/events/url_shorten/hit", "application/json", strings.NewReader(who))
					if !assert.NoError(t, err) {
						return
					}
					_, err = io.Copy(io.Discard, response.Body)
					assert.NoError(t, err)
					response.Body.Close()
					assert.Contains(t, []int{200, 429}, response.StatusCode)
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		for name, kind := range hostile {
			for range 5 {
				conn := c.dial()
				var sending sync.WaitGroup
				sending.Go(func() { kind.send(conn) })
				bad.Go(func() {
					if name == "never reads the answers" {
						sending.Wait() // it ends when the server has closed the connection
					}
					for _, status := range c.statuses(conn) {
						assert.True(t, slices.Contains(toldOff, status) || slices.Contains(kind.want, status), "%s: %d", name, status)
					}
					conn.Close()
					sending.Wait()
				})
			}
		}
		bad.Wait()
		assert.Less(t, time.Since(begin), 10*time.Second, "the server's timeouts are seconds")
		stop()
		good.Wait()
	})
}

// What a client may do, however odd, is answered.
func TestOddRequests(t *testing.T) {
	c := newClients(t, nil, 0)
	hit := fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", postHit, len(who), who)
	const last = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	for name, test := range map[string]struct {
		text string
		want []int
	}{
		"pipelined":                     {strings.Repeat(hit, 5) + last, []int{200, 200, 429, 429, 429, 200}},
		"HTTP/1.0, kept":                {"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + last, []int{200, 200}},
		"HTTP/2":                        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + last, []int{404}},
		"a huge URL":                    {"GET /" + strings.Repeat("x", 100<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n", []int{431}},
		"a huge header":                 {"GET /healthz HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("x", 100<<10) + "\r\n\r\n", []int{431}},
		"many headers":                  {"GET /healthz HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A: b\r\n", 20<<10) + "\r\n", []int{431}},
		"a length and chunks":           {postHit + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + last, []int{400, 200}},
		"expected, and sent":            {strings.Replace(postHit, "url_shorten/hit", "plain/increment", 1) + fmt.Sprintf("Content-Length: %d\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n%s", len(who), who), []int{100, 200}},
		"an absolute URL":               {"GET http://x/healthz HTTP/1.1\r\nHost: y\r\nConnection: close\r\n\r\n", []int{200}},
		"a path of dots":                {"GET /../../healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", []int{404}},
		"an odd method":                 {"B_R-E!W /v1/events/url_shorten/hit HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", []int{405}},
		"a body where none is taken":    {"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}", []int{400}},
		"a large body, where none is":   {"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 10485760\r\n\r\n" + strings.Repeat("x", 64<<10), []int{413}},
		"a large body, pipelined after": {last[:len(last)-21] + "\r\n" + postHit + "Content-Length: 10485760\r\n\r\n" + strings.Repeat("x", 64<<10), []int{200, 413}},
	} {
		t.Run(name, func(t *testing.T) {
			conn := c.dial()
			go io.WriteString(conn, test.text)
			assert.Equal(t, test.want, c.statuses(conn))
		})
	}
}

// Idle connections keep no client out: for a new one an idle one is closed.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	const most = 50
	c := newClients(t, nil, most)
	var idle []*rawConn
	for range most {
		conn := c.dial()
		c.answered(conn)
		idle = append(idle, conn)
	}
	testkit.Await(t, longest, "all connections", func() bool { return c.listener.Open() == most })
	for range 3 * most {
		c.answered(c.dial())
		require.LessOrEqual(t, c.listener.Open(), most)
	}
	assert.Zero(t, c.listener.Refused())
	_, err := idle[0].reader.Peek(1)
	assert.ErrorIs(t, err, io.EOF, "the one that has been idle for longest is closed")
}
