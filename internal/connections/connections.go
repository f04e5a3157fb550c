// Package connections bounds the connections of a server, so that clients keep theirs whatever
// strangers open. Packages api and rls have the servers that go with it.
package connections

import (
	"cmp"
	"container/list"
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
)

const (
	// DefaultMax bounds the connections of a Listener where nothing else is set.
	DefaultMax = 10_000
	// refusalTimeout bounds the wait for a client that is refused. What is said to it
	// fits into the buffer of any new connection.
	refusalTimeout = 100 * time.Millisecond
	// maxPartial bounds the bytes that all connections have sent of unfinished headers, and
	// strangers of requests that are not answered yet, beyond the first freePartial of each, or
	// freePartial2 over HTTP/2. net/http allocates some 16 times as much for headers of many
	// tiny fields, and up to 80 times for compressed ones.
	maxPartial   = 4 << 20
	freePartial  = 2 << 10
	freePartial2 = 512
	// maxUnread bounds the calls of clients over gRPC whose requests are not read yet.
	maxUnread = 10_000
	// idleAfter is how long a client's connection over gRPC has had no call that is idle. No call takes as long.
	idleAfter = time.Minute
	// maxAnswering bounds the strangers' connections over HTTP/2 with requests that are not
	// answered yet. Each may have maxStreams of them.
	maxAnswering = 64
)

// Listener accepts a bounded number of connections at a time. For one more it closes
// another one:
//
//   - first a stranger's, a connection on which no request was admitted yet: of the address
//     that holds the most of them, the one that has been quiet for longest;
//   - then an idle one, the one that has been idle for longest; over gRPC one without a call for a minute.
//
// Where there is neither, the Listener answers the new connection with a 503 and closes it: a
// queue would hide from its client that another process may have time. A server
// reports the states of its connections by OnState and Context, and its handler the requests
// that were admitted, by Admit. It is safe for concurrent use.
type Listener struct {
	net.Listener
	// TLS says that connections begin with a handshake: a client that is refused could not
	// read an answer. Set it before the first is accepted.
	TLS     bool
	most    int
	refused atomic.Int64
	partial atomic.Int64 // bytes that count towards maxPartial
	unread  atomic.Int64 // calls that count towards maxUnread

	mu        sync.Mutex
	open      map[*Connection]struct{}
	strangers map[netip.Prefix]*list.List // strangers' connections by address, quiet for longest first
	answering list.List                   // those of them over HTTP/2 with requests, in the order in which they came
	idle      list.List                   // clients' idle connections, idle for longest first
	clock     uint64                      // orders connections by when they became quiet
}

// NewListener bounds the connections of the listener; 0: DefaultMax.
func NewListener(l net.Listener, most int) *Listener {
	return &Listener{
		Listener: l, most: cmp.Or(most, DefaultMax),
		open: map[*Connection]struct{}{}, strangers: map[netip.Prefix]*list.List{},
	}
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
	if len(l.open) >= l.most && !l.evictOne() {
		return nil
	}
	c := &Connection{Conn: conn, listener: l, address: networkOf(conn)}
	l.open[c] = struct{}{}
	c.rest()
	return c
}

// evictOne closes a stranger's connection, else an idle one, if there is either, with mu held.
func (l *Listener) evictOne() bool {
	var most *list.List
	for _, of := range l.strangers {
		if most == nil || of.Len() > most.Len() || of.Len() == most.Len() && oldest(of).quiet < oldest(most).quiet {
			most = of
		}
	}
	if most == nil {
		most = &l.idle
	}
	if most.Len() == 0 {
		return l.evictUncalled()
	}
	oldest(most).evict()
	return true
}

// evictUncalled closes the client's connection over gRPC whose last call is the oldest, if it is idle, with mu held.
func (l *Listener) evictUncalled() bool {
	var first *Connection
	for c := range l.open {
		if called := c.called.Load(); called != 0 && (first == nil || called < first.called.Load()) {
			first = c
		}
	}
	if first == nil || time.Since(time.Unix(0, first.called.Load())) < idleAfter {
		return false
	}
	first.evict()
	return true
}

// oldest returns the connection that has been longest in a list, which is not empty.
func oldest(of *list.List) *Connection { return of.Front().Value.(*Connection) }

// evictHeaviest closes the connection that holds the most bytes of unfinished headers.
func (l *Listener) evictHeaviest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.partial.Load() <= maxPartial {
		return
	}
	var heaviest *Connection
	for c := range l.open {
		if heaviest == nil || c.partial.Load() > heaviest.partial.Load() {
			heaviest = c
		}
	}
	if heaviest != nil && heaviest.beyondFree(heaviest.partial.Load()) > 0 {
		heaviest.evict()
	}
}

// networkOf returns the address that a connection comes from, an IPv6 one as its /64, one of NAT64 as its IPv4 address. It is
// the zero Prefix where there is none, as over a Unix socket.
func networkOf(conn net.Conn) netip.Prefix {
	of, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	address := events.WithoutNAT64(of.AddrPort().Addr().Unmap().WithZone(""))
	bits := address.BitLen()
	if address.Is6() {
		bits = 64
	}
	network, err := address.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return network
}

// refusal is what is said on a connection that is refused.
const (
	refusalBody = `{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"There are too many connections."}` + "\n"
	refusalHead = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: " + wire.TypeProblem + "\r\nCache-Control: no-store\r\nRetry-After: 1\r\nConnection: close\r\n"
)

// refuse says no and closes. Whether the client hears it, or a reset, is up to the
// systems between: nothing depends on it.
func refuse(conn net.Conn) {
	if err := conn.SetWriteDeadline(time.Now().Add(refusalTimeout)); err == nil {
		_, _ = fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n%s", refusalHead, len(refusalBody), refusalBody)
	}
	_ = conn.Close()
}

// Connection is one of a Listener. It is a stranger's, until a request on it is admitted.
type Connection struct {
	net.Conn
	listener *Listener
	address  netip.Prefix
	known    atomic.Bool  // a request was admitted: the connection is a client's
	busy     atomic.Bool  // the headers of a request have been read, and it is not answered yet
	two      atomic.Bool  // over HTTP/2, where a busy connection goes on reading headers
	partial  atomic.Int64 // bytes that were read of headers, since the last answer
	removed  atomic.Bool  // it is none of the listener's any more
	called   atomic.Int64 // when a client's last call over gRPC began, in Unix nanoseconds; 0: there was none
	unread   atomic.Int64 // calls that count towards maxUnread; below 0: none do any more

	// Guarded by the listener's mu.
	evictable spot
	answering spot
	quiet     uint64 // the listener's clock when the connection became quiet
	streams   int    // a stranger's, over gRPC, that have not ended
}

// spot is the place of a connection in one of its listener's lists.
type spot struct {
	in    *list.List // nil: none
	place *list.Element
}

// set moves the connection to the end of the list.
func (s *spot) set(in *list.List, c *Connection) {
	s.clear()
	s.in, s.place = in, in.PushBack(c)
}

func (s *spot) clear() {
	if s.in != nil {
		s.in.Remove(s.place)
		s.in, s.place = nil, nil
	}
}

// Read reads, and bounds what all connections together hold of headers.
func (c *Connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n <= 0 || c.busy.Load() && (c.known.Load() || !c.two.Load()) {
		return n, err
	}
	after := c.partial.Add(int64(n))
	more := c.beyondFree(after) - c.beyondFree(after-int64(n))
	if more > 0 && c.listener.partial.Add(more) > maxPartial {
		c.listener.evictHeaviest()
	}
	if c.removed.Load() { // while it was read: what was given back is not all
		c.parsed()
	}
	return n, err
}

// beyondFree returns how many of the bytes count towards maxPartial.
func (c *Connection) beyondFree(bytes int64) int64 {
	if c.two.Load() {
		return max(bytes-freePartial2, 0)
	}
	return max(bytes-freePartial, 0)
}

// parsed gives back what the connection held of maxPartial.
func (c *Connection) parsed() { c.listener.partial.Add(-c.beyondFree(c.partial.Swap(0))) }

// rest makes the connection evictable, as one that has become quiet, with the listener's mu
// held.
func (c *Connection) rest() {
	l := c.listener
	if _, open := l.open[c]; !open {
		return
	}
	l.clock++
	c.quiet = l.clock
	if c.known.Load() {
		c.evictable.set(&l.idle, c)
		return
	}
	of := l.strangers[c.address]
	if of == nil {
		of = list.New()
		l.strangers[c.address] = of
	}
	c.evictable.set(of, c)
}

// keep makes the connection not evictable, with the listener's mu held.
func (c *Connection) keep() {
	c.evictable.clear()
	if of := c.listener.strangers[c.address]; of != nil && of.Len() == 0 {
		delete(c.listener.strangers, c.address)
	}
}

// evict closes the connection, with the listener's mu held. Its server closes it again.
func (c *Connection) evict() {
	c.remove()
	_ = c.Conn.Close()
}

// remove takes the connection out of the listener, with the listener's mu held.
func (c *Connection) remove() {
	c.keep()
	c.answering.clear()
	delete(c.listener.open, c)
	c.removed.Store(true)
	c.parsed()
	if n := c.unread.Swap(math.MinInt32); n > 0 {
		c.listener.unread.Add(-n)
	}
}

func (c *Connection) Close() error {
	c.listener.mu.Lock()
	c.remove()
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite ends what is sent. net/http does so before it waits a while for a client that
// may not have read its refusal: the client need not wait, too.
func (c *Connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// waits notes that all requests of the connection are answered.
func (c *Connection) waits() {
	c.parsed()
	c.busy.Store(false)
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.answering.clear()
	c.rest()
}

// works notes that the headers of a request have been read; two: over HTTP/2.
func (c *Connection) works(two bool) {
	known := c.known.Load()
	if known || !two || !c.two.Load() { // what came before HTTP/2 was the handshake
		c.parsed()
	}
	c.two.Store(two)
	c.busy.Store(true)
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	if known {
		c.keep()
		return
	}
	if _, open := l.open[c]; !open || !two {
		return
	}
	c.answering.set(&l.answering, c)
	if l.answering.Len() > maxAnswering {
		oldest(&l.answering).evict()
	}
}

// OfGRPC returns the connection of a Listener that a gRPC server got, or nil. Its server reports
// no states: the connection is evictable until it is a client's, and then by its last call.
func OfGRPC(conn net.Conn) *Connection {
	c := acceptedFrom(conn)
	if c != nil {
		c.parsed() // what came before HTTP/2 was the handshake
		c.two.Store(true)
		c.busy.Store(true)
	}
	return c
}

// Begin notes a stream of a stranger over gRPC. The caller reports its end by End.
func (c *Connection) Begin() {
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	c.streams++
	if _, open := l.open[c]; !open || c.streams > 1 {
		return
	}
	c.answering.set(&l.answering, c)
	if l.answering.Len() > maxAnswering {
		oldest(&l.answering).evict()
	}
}

// End notes the end of a stream that has begun.
func (c *Connection) End() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if c.streams--; c.streams == 0 {
		c.answering.clear()
		c.parsed()
	}
}

// Await notes a call of a client over gRPC whose request has not been read yet, until Received. Of too many it closes
// the connection with the most of them. A nil Connection has none.
func (c *Connection) Await() {
	if c == nil {
		return
	}
	c.called.Store(time.Now().UnixNano())
	if c.unread.Add(1) <= 0 {
		return
	}
	l := c.listener
	if l.unread.Add(1) <= maxUnread {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unread.Load() <= maxUnread {
		return
	}
	most := c
	for other := range l.open {
		if other.unread.Load() > most.unread.Load() {
			most = other
		}
	}
	most.evict()
}

// Received notes that the request of an awaited call has been read, or never will be.
func (c *Connection) Received() {
	if c != nil && c.unread.Add(-1) >= 0 {
		c.listener.unread.Add(-1)
	}
}

// Admit makes the connection a client's: one of its requests was admitted. A nil Connection
// is no Listener's, and stays as it is.
func (c *Connection) Admit() {
	if c == nil || c.known.Load() {
		return
	}
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.known.Store(true)
	c.parsed()
	c.answering.clear()
	c.keep()
	if !c.busy.Load() { // over HTTP/2 its client has given the request up
		c.rest()
	}
}

// IsStranger reports whether none of the connection's requests was admitted yet.
func (c *Connection) IsStranger() bool { return c != nil && !c.known.Load() }

type connectionKey struct{}

// Context makes the connection known to the handlers of its requests. It is the ConnContext of
// a server.
func Context(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, acceptedFrom(conn))
}

// Of returns the connection that a request came over; nil: no Listener accepted it.
func Of(r *http.Request) *Connection {
	c, _ := r.Context().Value(connectionKey{}).(*Connection)
	return c
}

// acceptedFrom returns the connection of a Listener that a server's connection is, or nil.
func acceptedFrom(conn net.Conn) *Connection {
	if over, ok := conn.(*tls.Conn); ok {
		conn = over.NetConn()
	}
	c, _ := conn.(*Connection)
	return c
}

// OnState notes which connections have requests: a new one has none, nor has one whose last
// request is answered. It is the ConnState of a server.
func OnState(conn net.Conn, state http.ConnState) {
	c := acceptedFrom(conn)
	switch {
	case c == nil:
	case state == http.StateIdle:
		c.waits()
	case state == http.StateActive:
		over, secure := conn.(*tls.Conn)
		c.works(secure && over.ConnectionState().NegotiatedProtocol == "h2")
	}
}
