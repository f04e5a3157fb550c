package memcache

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"
)

// errBusy is returned where all connections to a server were in use until the
// trip's time was over.
var errBusy = errors.New("no connection became free in time")

// lane is one connection to a server, for one trip at a time. Its gomemcache
// client keeps just that connection, and dials again when it broke. gomemcache
// sets a new deadline for each exchange; a lane holds them all to the trip's.
type lane struct {
	client   *gomemcache.Client
	deadline time.Time // of the trip that is under way
}

func newLane(s *server) *lane {
	l := &lane{client: gomemcache.NewFromSelector(s)}
	l.client.MaxIdleConns = 1
	l.client.DialContext = l.dial
	return l
}

func (l *lane) dial(_ context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Deadline: l.deadline}
	conn, err := dialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return laneConn{conn, l}, nil
}

// laneConn is the connection of a lane.
type laneConn struct {
	net.Conn
	lane *lane
}

// SetDeadline sets the deadline of the lane's trip, whatever is asked for.
func (c laneConn) SetDeadline(time.Time) error { return c.Conn.SetDeadline(c.lane.deadline) }

// lanes are the connections to one server. They are opened as they are needed,
// and the one used last is used next, so that few calls keep few open.
type lanes struct {
	server *server
	slots  chan struct{} // one for each trip under way
	mu     sync.Mutex
	closed bool
	idle   []*lane
}

// enter returns a lane for a trip that ends at the deadline, waiting for one to
// become free if need be. leave gives it back.
func (ls *lanes) enter(ctx context.Context, deadline time.Time) (*lane, error) {
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
	var l *lane
	if n := len(ls.idle); n > 0 {
		l = ls.idle[n-1]
		ls.idle = ls.idle[:n-1]
	} else {
		l = newLane(ls.server)
	}
	l.deadline = deadline
	return l, nil
}

// wait takes a slot as soon as one is free.
func (ls *lanes) wait(ctx context.Context, deadline time.Time) error {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case ls.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return errBusy
	}
}

func (ls *lanes) leave(l *lane) {
	ls.mu.Lock()
	ls.idle = append(ls.idle, l)
	ls.mu.Unlock()
	<-ls.slots
}

// close waits for the trips under way and closes all connections. Only the first
// call does.
func (ls *lanes) close() error {
	ls.mu.Lock()
	again := ls.closed
	ls.closed = true
	ls.mu.Unlock()
	if again {
		return nil
	}
	for range cap(ls.slots) {
		ls.slots <- struct{}{}
	}
	// Nobody comes back from here on: those who wait for a slot find the lanes
	// closed when they get one.
	for range cap(ls.slots) {
		<-ls.slots
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	var faults []error
	for _, l := range ls.idle {
		faults = append(faults, l.client.Close())
	}
	ls.idle = nil
	return errors.Join(faults...)
}
