package memcache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/internal/memproto"
	"github.com/counterd/counterd/internal/replica"
)

// server is one Memcached server of a fleet, and a replica of counters.
type server struct {
	memproto.Endpoint
	common   *common
	pool     *memproto.Pool     // connections of the classic path
	pipeline *memproto.Pipeline // connections of the meta path
	dialect  dialect
	breaker  breaker
	examiner examiner
	lists    optional // its keys
}

// common is what all servers of a fleet have.
type common struct {
	Config // with all defaults
	closed atomic.Bool
	stalls stallDetector
	mark   string // of the KeySecret
	hurry  func() // has all servers be looked at soon: their markers are to say that one is away
}

func newServer(name string, c *common, d memproto.Dialer) *server {
	s := &server{Endpoint: memproto.Endpoint{Name: name, Dialer: d, Dialing: c.dialing}, common: c}
	s.pool = memproto.NewPool(&s.Endpoint, c.Conns, s.dialect.reconnected)
	s.pipeline = memproto.NewPipeline(s.dialMeta, min(c.Conns, memproto.MaxPipelined), c.Timeout)
	s.dialect.protocol, s.dialect.lasts = c.Protocol, classicFor
	if c.OnProtocol != nil {
		s.dialect.learned = func(speaks Protocol) { c.OnProtocol(name, speaks) }
	}
	s.breaker.init(s, &c.stalls)
	x := &s.examiner
	x.endpoint, x.breaker, x.timeout = &s.Endpoint, &s.breaker, c.Timeout
	x.pace, x.compares = cmp.Or(c.pace, lookEvery), cmp.Or(c.pace/2, compareEvery)
	x.secrets.own, x.secrets.changed = c.mark, func() { s.changed(OtherSecret) }
	return s
}

// changeOf is what a loss is to a fleet's callers.
var changeOf = [...]Change{replica.Emptied: Emptied, replica.Evicting: Evicting, replica.Repaired: Repaired, replica.Several: Several, replica.Same: Same}

// close waits for the trips under way and closes all connections.
func (s *server) close() error {
	s.pipeline.Close()
	s.examiner.memory.Leave()
	return s.pool.Close()
}

// dialMeta opens a connection of the meta path, and remembers whether the server knows the
// commands. The user of the connection has to know of a loss before its first command.
func (s *server) dialMeta(ctx context.Context, deadline time.Time) (net.Conn, error) {
	conn, err := memproto.DialMeta(ctx, deadline, &s.Endpoint, func(conn net.Conn) error { return s.examiner.checkMarker(conn) })
	s.dialect.learn(err)
	return conn, err
}

// askAgain asks a classic server in the background whether it knows the meta commands by now.
func (s *server) askAgain() {
	if !s.pipeline.Background(func(ctx context.Context) {
		defer s.dialect.asking.Store(false)
		if conn, err := s.dialMeta(ctx, time.Now().Add(s.common.Timeout)); err == nil {
			conn.Close()
		}
	}) {
		s.dialect.asking.Store(false)
	}
}

// ping asks the server whether it is there, on a new connection, and then looks at it.
func (s *server) ping(ctx context.Context) error {
	if s.common.closed.Load() {
		return ErrClosed
	}
	timeout := s.common.Timeout
	began := time.Now()
	deadline := began.Add(timeout)
	if end, bounded := ctx.Deadline(); bounded && end.Before(deadline) {
		deadline = end
	}
	var err, fault error
	if s.common.Protocol == Meta { // one that only speaks the classic commands is of no use
		var conn net.Conn
		if conn, err = memproto.DialMeta(ctx, deadline, &s.Endpoint, func(net.Conn) error { return nil }); err == nil {
			err = conn.Close()
		}
		err = s.Wrap(err)
	} else {
		pool := memproto.NewPool(&s.Endpoint, 1, func() {})
		err = pool.Trip(ctx, deadline, timeout, 0, (*memproto.Conn).Ping)
		fault = pool.Close()
	}
	switch admitted := s.breaker.admit(); {
	case admitted != nil:
	case err == nil && s.examiner.pace > 0:
		_ = s.examiner.look(ctx, deadline) // it is there, whatever comes of that
	case err != nil && memproto.IsOutage(err) && deadline.Sub(began) >= timeout/2 && !s.breaker.ignores(err, memproto.Instant(began)):
		s.breaker.open(err)
	}
	return errors.Join(err, fault)
}

// What follows is what its breaker asks of a server.

func (s *server) begin() {
	if s.examiner.pace > 0 {
		s.pipeline.Background(s.examiner.watch)
	}
}

// probe is on a connection of its own, and finds out whether the server has come back empty.
func (s *server) probe(ctx context.Context) (err error) {
	deadline := time.Now().Add(min(s.common.Timeout, longestProbe))
	classic := s.common.Protocol == Classic
	if !classic {
		var conn net.Conn
		if conn, err = s.dialMeta(ctx, deadline); err == nil {
			err = conn.Close()
		}
		classic = errors.Is(err, memproto.ErrClassic)
	}
	if classic {
		err = s.examiner.look(ctx, deadline)
	}
	return err
}

func (s *server) down(cause *downError, run func(context.Context)) {
	s.pipeline.Drop(cause)
	s.examiner.memory.Away()
	s.common.hurry()
	s.changed(Down)
	s.pipeline.Background(run)
}

// changed tells of a change. No lock is held meanwhile.
func (s *server) changed(change Change) {
	if s.common.OnServerChange != nil {
		s.common.OnServerChange(change, s.health())
	}
}

func (s *server) health() ServerHealth {
	h := ServerHealth{
		Name: s.Name(), Up: s.breaker.up(), Openings: s.breaker.openings.Load(), Lost: s.examiner.memory.Lost(), Speaks: s.dialect.speaks(),
		Stats: s.examiner.lastStats(),
	}
	h.OtherSecret, h.OtherHost = s.examiner.secrets.found()
	h.Several, h.SameAs = s.examiner.memory.NameFaults()
	h.Down, h.Err = s.breaker.outage()
	return h
}

// servers is the list of a fleet's servers.
type servers []*server

// change returns the list of the servers with these names: the ones of the old list that
// stay, and new ones; and the ones that go. It checks all names and reports all faults
// together.
func (list servers) change(ctx context.Context, names []string, create func(name string) *server) (after, gone servers, err error) {
	var faults []error
	stays := map[*server]bool{}
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			faults = append(faults, fmt.Errorf("memcache: server %s is named twice", name))
		}
		seen[name] = true
		if s := list.named(name); s != nil {
			stays[s] = true
			after = append(after, s)
			continue
		}
		s := create(name)
		if err := s.Check(ctx); err != nil {
			faults = append(faults, err)
		}
		after = append(after, s)
	}
	if len(names) == 0 {
		faults = append(faults, errors.New("memcache: no servers"))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, nil, err
	}
	for _, s := range list {
		if !stays[s] {
			gone = append(gone, s)
		}
	}
	return after, gone, nil
}

func (list servers) named(name string) *server {
	for _, s := range list {
		if s.Name() == name {
			return s
		}
	}
	return nil
}
