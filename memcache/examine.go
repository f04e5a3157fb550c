package memcache

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/counterd/counterd/internal/memproto"
	"github.com/counterd/counterd/internal/replica"
)

const (
	// lookEvery is the time between two looks at a server's statistics, give or take a quarter:
	// within a second it is known that a flush_all came, or that it drops what it holds because it is full.
	lookEvery = 600 * time.Millisecond
	// compareEvery is the time between two looks that also read its marker, and compare secrets and
	// clocks, unless there is reason for one at once.
	compareEvery = 2500 * time.Millisecond
)

// examiner looks at a server beside its trips: at its marker, at the secrets and the
// clocks of other processes, and at its statistics.
type examiner struct {
	endpoint *memproto.Endpoint
	breaker  *breaker
	memory   *replica.Memory
	secrets  secrets
	clocks   func(net.Conn) error
	timeout  time.Duration
	pace     time.Duration // between two looks; below 0: none is taken
	compares time.Duration // between two looks at all of it

	mu          sync.Mutex
	stats       memproto.Stats // the last
	examined    time.Time      // when all of it was last
	asks, ticks optional       // for statistics, and for clocks
}

// watch looks at the server every now and then, until the context ends: so an outage is
// noticed where there is no traffic, a flush_all where no connection breaks, and that a
// full server evicts.
func (x *examiner) watch(ctx context.Context) {
	var conn net.Conn // of the looks; nil: there is none
	defer func() {
		if conn != nil {
			conn.Close()
		}
	}()
	// Not at once: the first connections are for callers that wait.
	for pause := x.pace / 5; rest(ctx, pause); pause = x.pace*3/4 + rand.N(x.pace/2) {
		if x.breaker.up() {
			conn = x.inspect(ctx, conn)
		}
	}
}

// rest waits for the pause. It reports whether the context goes on.
func rest(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return ctx.Err() == nil
}

// inspect looks at the server, and again where it does not answer, until it counts as
// down. It returns the connection for the next look. Each exchange may take as long as a round trip.
func (x *examiner) inspect(ctx context.Context, conn net.Conn) net.Conn {
	for tries := 0; tries < maxFailures; {
		began, kept := time.Now(), conn != nil
		var err error
		if !kept {
			if conn, err = x.endpoint.Dial(ctx, began.Add(x.timeout)); err == nil {
				conn = memproto.NewTimed(ctx, conn, x.timeout)
			}
		}
		if err == nil {
			conn, err = x.lookOn(conn, !kept)
		}
		if ctx.Err() != nil || !x.breaker.up() {
			return conn
		}
		if kept && err != nil {
			continue // the connection may have been closed meanwhile
		}
		x.breaker.note(err, memproto.Instant(began), true)
		if tries++; err == nil || !memproto.IsOutage(err) {
			return conn
		}
	}
	return conn
}

// lookOn looks at the server on the connection, which was opened for it or for an earlier look. It
// returns the one for the next look, or closes it.
func (x *examiner) lookOn(conn net.Conn, opened bool) (next net.Conn, err error) {
	due := x.isDue(opened)
	if due {
		err = x.checkMarker(conn)
	}
	if err == nil && (!due || x.compare(conn) == nil) {
		if err = x.lookAtStats(conn); err == nil {
			return conn, nil
		}
		if opened { // many proxies have none, and some hang up: that says nothing of the server
			err = nil
		}
	}
	conn.Close()
	return nil, err
}

// within uses the connection until the deadline, or the end of the context.
func within(ctx context.Context, conn net.Conn, deadline time.Time, use func() error) error {
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })()
	return use()
}

// hurry has the next look be at all of the server.
func (x *examiner) hurry() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.examined = time.Time{}
}

// isDue reports whether a look is to be at all of the server: always on a connection that was opened for
// it and where there are no statistics, else every now and then.
func (x *examiner) isDue(opened bool) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	due := opened || now.Sub(x.examined) >= x.compares || x.asks.rests()
	if due {
		x.examined = now
	}
	return due
}

// compare compares secrets and clocks with those of other processes. It returns an error if the
// connection is of no more use.
func (x *examiner) compare(conn net.Conn) error {
	if _, err := x.secrets.compare(conn); err != nil {
		return err
	}
	return x.compareClocks(conn)
}

// look reads the marker, the mark of secrets, the clocks and the statistics on a connection of its own.
func (x *examiner) look(ctx context.Context, deadline time.Time) error {
	conn, err := x.endpoint.Dial(ctx, deadline)
	if err != nil {
		return err
	}
	defer conn.Close()
	return within(ctx, conn, deadline, func() error {
		_, err := x.lookOn(conn, true)
		return err
	})
}

// checkMarker finds out whether the server has lost what it held. What makes it an error is a
// connection that is of no use.
func (x *examiner) checkMarker(conn net.Conn) error {
	if x.pace < 0 {
		return nil
	}
	return x.memory.Check(memproto.NewMarkerItem(conn))
}

// onMarker calls use with the server's marker, on a connection of its own.
func (x *examiner) onMarker(ctx context.Context, deadline time.Time, use func(replica.MarkerItem) error) error {
	conn, err := x.endpoint.Dial(ctx, deadline)
	if err != nil {
		return err
	}
	defer conn.Close()
	return within(ctx, conn, deadline, func() error { return use(memproto.NewMarkerItem(conn)) })
}

// compareClocks compares the clocks of processes through a server that lets it. It returns an error if
// the connection is of no more use.
func (x *examiner) compareClocks(conn net.Conn) error {
	if x.ticks.rests() {
		return nil
	}
	err := x.clocks(conn)
	x.ticks.note(err)
	return err
}

// lookAtStats takes in the statistics of a server that has any. It returns an error if the connection is of
// no more use.
func (x *examiner) lookAtStats(conn net.Conn) error {
	if x.asks.rests() {
		return nil
	}
	stats, err := memproto.FetchStats(conn)
	if x.asks.note(err); err != nil {
		return err
	}
	x.mu.Lock()
	flushed := stats.Flushes != x.stats.Flushes
	x.stats = stats
	x.mu.Unlock()
	if flushed {
		err = x.checkMarker(conn)
	}
	if err != nil || x.pace < 0 {
		return err
	}
	return x.memory.Count(memproto.NewMarkerItem(conn), stats.Items, stats.Evictions)
}

// lastStats returns the statistics of the last look.
func (x *examiner) lastStats() memproto.Stats {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stats
}
