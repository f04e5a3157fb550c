package memproto

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"
)

// Conn is one connection to a server, for one trip at a time. Its gomemcache
// client keeps just that connection, and dials again when it broke. gomemcache
// sets a new deadline for each exchange; a pooled connection holds them all to the trip's.
//
// A pooled connection reads items itself. gomemcache would allocate as much as a server says that an item
// has, 4 GiB at the most, before the item comes.
type Conn struct {
	pool     *Pool
	client   *gomemcache.Client
	conn     net.Conn  // the pooled connection's and the client's, or nil
	number   uint32    // of that: see newNumber
	answers  []byte    // memory for what get reads
	answered bool      // something came on it
	deadline time.Time // of the trip that is under way
	inForce  time.Time // the deadline that the connection has
}

func newConn(pool *Pool) *Conn {
	l := &Conn{pool: pool, client: gomemcache.NewFromSelector(pool.endpoint)}
	l.client.MaxIdleConns = 1
	l.client.DialContext = l.dial
	return l
}

// dial returns the pooled connection's connection, which it opens where there is none.
func (l *Conn) dial(context.Context, string, string) (net.Conn, error) {
	if l.conn == nil {
		conn, err := l.pool.endpoint.Dial(context.Background(), l.deadline)
		if err != nil {
			return nil, err
		}
		l.conn, l.inForce, l.answered, l.number = conn, time.Time{}, false, newNumber()
		l.pool.open.Store(l.number, nil)
		l.pool.newest.Store(l.number)
		l.pool.onDial()
	}
	return deadlineConn{l.conn, l}, nil
}

// close closes the connection, if there is one.
func (l *Conn) close() error {
	err := l.client.Close()
	if l.conn != nil { // the client has not used it yet
		err = errors.Join(err, deadlineConn{l.conn, l}.Close())
	}
	return err
}

// run makes the trip. gomemcache panics on some answers that no Memcached gives;
// what is left of its connection is then of no use.
func (l *Conn) run(trip func(*Conn) error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = errors.Join(fmt.Errorf("%w: %v", errNonsense, cause), l.close())
		}
	}()
	return plain(trip(l))
}

// plain returns what an error of gomemcache means, without the keys that are in a server's
// line.
func plain(err error) error {
	if number, ok := errors.AsType[*strconv.NumError](err); ok {
		if isError([]byte(number.Num)) {
			return refusal("the server answered " + withoutKeys(strings.TrimSpace(number.Num)))
		}
		return nonsense([]byte(number.Num))
	}
	switch {
	case err == nil:
	case strings.HasPrefix(err.Error(), "memcache: client error: "+strings.TrimPrefix(nonNumeric, "CLIENT_ERROR ")):
		return errNoCount
	case strings.HasPrefix(err.Error(), "memcache: unexpected"):
		return errors.New(withoutKeys(err.Error()))
	}
	return err
}

// answerBuffer is how much of an answer get reads at once. It is longer than any one line
// with its data.
const answerBuffer = 4 << 10

// get makes a call that reads and does nothing else.
func (l *Conn) get(c *Call) error {
	conn, err := l.dial(context.Background(), "", "")
	if err != nil {
		return err
	}
	c.conn = l.pool.newest.Load()
	if err := l.read(conn, c); err != nil {
		return errors.Join(err, l.close())
	}
	return nil
}

func (l *Conn) read(conn net.Conn, c *Call) error {
	if err := conn.SetDeadline(l.deadline); err != nil {
		return err
	}
	if _, err := conn.Write(c.request); err != nil {
		return err
	}
	if l.answers == nil {
		l.answers = make([]byte, answerBuffer)
	}
	for have := 0; ; {
		n, err := conn.Read(l.answers[have:])
		have += n
		used, last, fault := c.read(l.answers[:have])
		rest := l.answers[used:have]
		switch {
		case fault != nil && strings.HasPrefix(string(rest), unauthenticated):
			return errNoCredentials
		case fault != nil && isError(rest):
			line, _, _ := bytes.Cut(rest, []byte("\r\n"))
			return refusal("the server answered " + withoutKeys(string(line)))
		case fault != nil:
			return fault
		case last && len(rest) > 0:
			return nonsense(rest)
		case last:
			return nil
		case err != nil:
			return err
		}
		have = copy(l.answers, rest)
	}
}

// dead reports whether the server, or something on the way to it, has closed the connection
// while it was idle: after a restart, or because there was no traffic. A request on it
// would be lost, and be an error that need not be.
func (l *Conn) dead() bool {
	if l.conn == nil {
		return false
	}
	raw, records := control(l.conn)
	return raw != nil && closedRaw(raw, records)
}

// deadlineConn is the connection of a pooled connection.
type deadlineConn struct {
	net.Conn
	owner *Conn
}

// SetDeadline sets the deadline of the pooled connection's trip, whatever is asked for, and once
// for each trip: gomemcache asks again with each line that it reads.
func (c deadlineConn) SetDeadline(time.Time) error {
	if c.owner.inForce.Equal(c.owner.deadline) {
		return nil
	}
	c.owner.inForce = c.owner.deadline
	return c.Conn.SetDeadline(c.owner.deadline)
}

// Read and Write say more of a connection that fails before its first answer.
func (c deadlineConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.owner.answered = c.owner.answered || n > 0
	return n, c.owner.explain(err)
}

func (c deadlineConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, c.owner.explain(err)
}

// Close has the pooled connection open another connection for what comes next.
func (c deadlineConn) Close() error {
	if c.owner.conn == c.Conn {
		c.owner.conn = nil
		c.owner.pool.open.Delete(c.owner.number)
	}
	return c.Conn.Close()
}

func (l *Conn) explain(err error) error {
	if err != nil && !l.answered {
		return unanswered(l.conn, err)
	}
	return err
}

// Pool keeps the connections to one server. They are opened as they are needed,
// and the one used last is used next, so that few calls keep few open.
type Pool struct {
	endpoint *Endpoint
	onDial   func()        // is called when a connection was opened
	open     sync.Map      // the numbers of the connections that are open
	newest   atomic.Uint32 // the last of them
	slots    chan struct{} // one for each trip under way
	closing  chan struct{} // closed when the pool is
	mu       sync.Mutex
	closed   bool
	idle     []*Conn
	left     sync.Cond // on mu, of idle
}

// NewPool returns the pool of at most so many connections to the server. onDial is called when one
// was opened.
func NewPool(to *Endpoint, conns int, onDial func()) *Pool {
	ls := &Pool{endpoint: to, onDial: onDial, slots: make(chan struct{}, conns), closing: make(chan struct{})}
	ls.left.L = &ls.mu
	return ls
}

// Trip makes one trip to the server on a connection of its own, within the deadline and,
// once it has the connection, the timeout. It is on a connection that reaches the version, and
// ErrUnread if there is none; version 0: on any.
func (ls *Pool) Trip(ctx context.Context, deadline time.Time, timeout time.Duration, version uint64, trip func(*Conn) error) error {
	l, err := ls.enter(ctx, deadline, version)
	if err == nil {
		if soon := time.Now().Add(timeout); soon.Before(deadline) {
			l.deadline = soon
		}
		err = l.run(trip)
		ls.leave(l)
	}
	return ls.endpoint.Wrap(err)
}

// enter returns a pooled connection for a trip that ends at the deadline, waiting for one to
// become free if need be. leave gives it back.
func (ls *Pool) enter(ctx context.Context, deadline time.Time, version uint64) (*Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case ls.slots <- struct{}{}:
	default:
		if err := ls.wait(ctx, deadline); err != nil {
			return nil, err
		}
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		<-ls.slots
		return nil, ErrClosed
	}
	l := ls.next(version)
	for _, open := ls.open.Load(connOf(version)); l == nil && open; _, open = ls.open.Load(connOf(version)) {
		// The connection that the version names is in use, and will be left by its deadline.
		if ls.left.Wait(); !time.Now().Before(deadline) {
			<-ls.slots
			return nil, ErrBusy
		}
		l = ls.next(version)
	}
	switch {
	case l == nil && version != 0: // a connection of its own would only stay behind
		<-ls.slots
		return nil, ErrUnread
	case l == nil:
		l = newConn(ls)
	}
	l.deadline = deadline
	return l, nil
}

// next returns the pooled connection used last whose connection is alive, and which reaches the
// version; nil: there is none.
func (ls *Pool) next(version uint64) *Conn {
	for n := len(ls.idle) - 1; n >= 0; n-- {
		l := ls.idle[n]
		if version != 0 && !l.reaches(version) {
			continue
		}
		ls.idle = slices.Delete(ls.idle, n, n+1)
		if !l.dead() {
			return l
		}
		_ = l.close() // it is closed already on the other side
	}
	return nil
}

// wait takes a slot as soon as one is free.
func (ls *Pool) wait(ctx context.Context, deadline time.Time) error {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case ls.slots <- struct{}{}:
		return nil
	case <-ls.closing:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return ErrBusy
	}
}

func (ls *Pool) leave(l *Conn) {
	ls.mu.Lock()
	ls.idle = append(ls.idle, l)
	ls.left.Broadcast()
	ls.mu.Unlock()
	<-ls.slots
}

// Close waits for the trips under way and closes all connections. Only the first
// call does.
func (ls *Pool) Close() error {
	ls.mu.Lock()
	again := ls.closed
	ls.closed = true
	ls.mu.Unlock()
	if again {
		return nil
	}
	close(ls.closing)
	for range cap(ls.slots) {
		ls.slots <- struct{}{}
	}
	// No connection comes back from here on: a caller that gets a slot finds the pool
	// closed.
	for range cap(ls.slots) {
		<-ls.slots
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	var faults []error
	for _, l := range ls.idle {
		faults = append(faults, l.close())
	}
	ls.idle = nil
	return errors.Join(faults...)
}
