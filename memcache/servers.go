package memcache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"
)

// server is one Memcached server of a fleet. It is the net.Addr that gomemcache
// dials, and the ServerSelector that sends every key there: which server has a
// counter is decided once for a trip, not for each of its keys.
type server struct {
	fleet    *Fleet
	name     string // as configured: the address, and the server's part in placement
	dialer   dialer
	pool     connPool  // connections of the classic path
	pipeline *pipeline // connections of the meta path

	// What is known of the commands it speaks.
	classicSince atomic.Int64 // when it last was found to be a classic server
	classicUntil atomic.Int64 // until when that is taken for granted; 0: it is not known to be one
	asking       atomic.Bool  // it is being asked again
	known        atomic.Int32 // the Protocol that learned was told last; 0: none
	learned      func(server string, speaks Protocol)

	// What the fleet says of it, before the first call.
	protocol Protocol
	clock    func() time.Time
	change   func(Change, ServerHealth)                         // or nil
	dialing  func(context.Context, time.Time) (net.Conn, error) // nil: the dialer; for tests
	pace     time.Duration                                      // between two looks; below 0: nobody looks

	breaker breaker
	losses  lossDetector
	pokes   chan struct{} // there is reason to look at it
}

func newServer(name string, conns int, timeout time.Duration, dialer dialer) *server {
	s := &server{name: name, dialer: dialer}
	s.pool.server = s
	s.pool.slots = make(chan struct{}, conns)
	s.pool.closing = make(chan struct{})
	s.pipeline = newPipeline(s, min(conns, maxPipelinedConns), timeout)
	s.pokes = make(chan struct{}, 1)
	s.breaker.init()
	return s
}

// belong makes the server one of the fleet's, before the first call.
func (s *server) belong(f *Fleet) {
	added := len(f.servers) > 0
	s.fleet, s.clock = f, f.wallClock
	s.learned, s.change, s.protocol, s.dialing = f.config.OnProtocol, f.config.OnServerChange, f.config.Protocol, f.config.dialing
	s.pace = cmp.Or(f.config.pace, lookEvery)
	s.losses.join(&f.losses, s, added)
}

// close waits for the trips under way and closes all connections.
func (s *server) close() error {
	s.pipeline.close()
	s.losses.leave(s)
	return s.pool.close()
}

// Network returns tcp, or unix for a name that is a path.
func (s *server) Network() string {
	if strings.Contains(s.name, "/") {
		return "unix"
	}
	return "tcp"
}

// String returns the server's name.
func (s *server) String() string { return s.name }

// PickServer returns the server, whatever the key.
func (s *server) PickServer(string) (net.Addr, error) { return s, nil }

// Each calls f with the server.
func (s *server) Each(f func(net.Addr) error) error { return f(s) }

// servers is the list of a fleet's servers.
type servers []*server

// change returns the list of the servers with these names: those of the old list that
// stay, and new ones; and those that go. It checks all names and reports all faults
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
		if err := s.check(ctx); err != nil {
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
		if s.name == name {
			return s
		}
	}
	return nil
}

// check finds the names that can never be reached. A server that is down is no
// fault: it may come back.
func (s *server) check(ctx context.Context) error {
	if s.Network() == "unix" {
		return nil
	}
	host, port, err := net.SplitHostPort(s.name)
	if err != nil || host == "" || port == "" {
		return fmt.Errorf("memcache: server %q is neither host:port nor the path of a socket", s.name)
	}
	if _, err := net.DefaultResolver.LookupPort(ctx, "tcp", port); err != nil {
		return fmt.Errorf("memcache: server %q has no valid port", s.name)
	}
	if _, err := net.DefaultResolver.LookupHost(ctx, host); err != nil {
		return fmt.Errorf("memcache: server %q: %w", s.name, err)
	}
	return nil
}
