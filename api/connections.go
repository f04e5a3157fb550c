package api

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/api/wire"
)

const (
	// DefaultMaxConnections bounds the connections of a Listener where nothing else is
	// set.
	DefaultMaxConnections = 10_000
	// maxLooked is how many connections are looked at for an idle one.
	maxLooked = 256
	// refusalTimeout bounds the wait for a client that is refused. What is said to it
	// fits into the buffer of any new connection.
	refusalTimeout = 100 * time.Millisecond
)

// Listener accepts a bounded number of connections at a time. For one more it closes an
// idle one. Where none is idle the new one is answered with a 503 and closed: to let it
// wait would be a queue that nobody bounds, and its client would not know to ask
// another process. It goes with a server of NewServer, which says what is idle.
type Listener struct {
	net.Listener
	// TLS says that connections begin with a handshake: those that are refused could not
	// read what is said to them. Set it before the first is accepted.
	TLS     bool
	most    int
	mu      sync.Mutex
	open    map[*connection]struct{}
	refused atomic.Int64
}

// NewListener bounds the connections of the listener; 0: DefaultMaxConnections.
func NewListener(l net.Listener, most int) *Listener {
	return &Listener{Listener: l, most: cmp.Or(most, DefaultMaxConnections), open: map[*connection]struct{}{}}
}

// Accept returns the next connection for which there is room.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.admit(conn); c != nil {
			return c, nil
		}
		l.refused.Add(1)
		if l.TLS {
			_ = conn.Close()
			continue
		}
		refuse(conn)
	}
}

// Open returns how many connections there are.
func (l *Listener) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

// Refused returns how many connections have been refused.
func (l *Listener) Refused() int64 { return l.refused.Load() }

// admit returns the connection as one of the listener's, or nil where there is no room
// for it.
func (l *Listener) admit(conn net.Conn) net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= l.most && !l.closeIdle() {
		return nil
	}
	c := &connection{Conn: conn, listener: l}
	l.open[c] = struct{}{}
	return c
}

// closeIdle closes an idle connection, if it finds one, with mu held.
func (l *Listener) closeIdle() bool {
	looked := 0
	for c := range l.open { // in no order
		if c.idle.Load() {
			delete(l.open, c)
			_ = c.Conn.Close() // its server closes it again
			return true
		}
		if looked++; looked == maxLooked {
			break
		}
	}
	return false
}

// refusal is what is said on a connection that is refused.
const (
	refusalBody = `{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"There are too many connections."}` + "\n"
	refusalHead = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: " + wire.TypeProblem + "\r\nCache-Control: no-store\r\nRetry-After: " +
		retryOverload + "\r\nConnection: close\r\n"
)

// refuse says no and closes. Whether the client hears it, or a reset, is up to the
// systems between: nothing depends on it.
func refuse(conn net.Conn) {
	if err := conn.SetWriteDeadline(time.Now().Add(refusalTimeout)); err == nil {
		_, _ = fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n%s", refusalHead, len(refusalBody), refusalBody)
	}
	_ = conn.Close()
}

// connection is one of a Listener.
type connection struct {
	net.Conn
	listener *Listener
	idle     atomic.Bool
}

func (c *connection) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// noteState notes which connections are idle: those whose last request is answered.
func noteState(conn net.Conn, state http.ConnState) {
	if over, ok := conn.(*tls.Conn); ok {
		conn = over.NetConn()
	}
	if c, ok := conn.(*connection); ok {
		c.idle.Store(state == http.StateIdle)
	}
}
