package memcachedtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// network contains the servers in this process, by address.
var network sync.Map

// ports is the number of servers that this process has had.
var ports atomic.Int64

// local is a server in this process.
type local struct {
	serve func(number int, conn net.Conn)

	mu      sync.Mutex
	refuses bool
	number  int
	conns   map[net.Conn]bool
	running sync.WaitGroup
}

// Serve runs a server in this process until the test ends, and returns its address, which Dial
// connects to. Each connection is served by a function, which receives its number. A bubble of
// package synctest can run all of it.
func Serve(tb testing.TB, serve func(number int, conn net.Conn)) (addr string) {
	addr, _ = listen(tb, serve)
	return addr
}

func listen(tb testing.TB, serve func(number int, conn net.Conn)) (addr string, l *local) {
	l = &local{serve: serve, conns: map[net.Conn]bool{}}
	n := ports.Add(1)
	addr = fmt.Sprintf("127.1.%d.%d:11211", n/250, n%250+1)
	network.Store(addr, l)
	tb.Cleanup(func() {
		network.Delete(addr)
		l.refuse()
		l.running.Wait()
	})
	return addr, l
}

// IsLocal reports whether the server of that address runs in this process.
func IsLocal(addr string) bool {
	_, found := network.Load(addr)
	return found
}

// Dial opens a connection to a server in this process. The buffers of the connection have no bound.
func Dial(_ context.Context, addr string, _ time.Time) (net.Conn, error) {
	l, found := network.Load(addr)
	if !found {
		return nil, syscall.ECONNREFUSED
	}
	return l.(*local).dial()
}

func (l *local) dial() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuses {
		return nil, syscall.ECONNREFUSED
	}
	ours, theirs := net.Pipe()
	l.conns[theirs] = true
	number, served := l.number, newBufferedConn(theirs)
	l.number++
	l.running.Go(served.fill)
	l.running.Go(func() {
		defer theirs.Close()
		l.serve(number, served)
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, theirs)
	})
	return clientConn{ours}, nil
}

// cut closes all connections.
func (l *local) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.conns {
		conn.Close()
	}
}

// refuse closes all connections, and refuses new ones.
func (l *local) refuse() {
	l.mu.Lock()
	l.refuses = true
	l.mu.Unlock()
	l.cut()
}

func (l *local) accept() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuses = false
}

// clientConn returns the errors of a socket.
type clientConn struct{ net.Conn }

func (c clientConn) Write(b []byte) (n int, err error) {
	n, err = c.Conn.Write(b)
	if errors.Is(err, io.ErrClosedPipe) {
		err = syscall.EPIPE
	}
	return n, err
}

// bufferedConn buffers incoming bytes without bound, so that the client can write without waiting.
type bufferedConn struct {
	net.Conn
	mu   sync.Mutex
	news sync.Cond // on mu: buf or err has changed
	buf  []byte
	err  error
}

func newBufferedConn(conn net.Conn) *bufferedConn {
	c := &bufferedConn{Conn: conn}
	c.news.L = &c.mu
	return c
}

func (c *bufferedConn) fill() {
	for b := make([]byte, 32<<10); ; {
		n, err := c.Conn.Read(b)
		c.mu.Lock()
		c.buf, c.err = append(c.buf, b[:n]...), err
		c.news.Signal()
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (c *bufferedConn) Read(b []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.buf) == 0 && c.err == nil {
		c.news.Wait()
	}
	if len(c.buf) == 0 {
		return 0, c.err
	}
	n = copy(b, c.buf)
	c.buf = c.buf[n:]
	return n, nil
}
