package memcache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"strings"
	"sync/atomic"
	"time"
)

// server is one Memcached server of a fleet. It is the net.Addr that gomemcache
// dials, and the ServerSelector that sends every key there: which server has a
// counter is decided once for a trip, not for each of its keys.
type server struct {
	name  string // as configured: the address, and the server's part in placement
	seed  uint64
	lanes lanes  // connections of the classic path
	pipes *pipes // connections of the meta path

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
	dialer   func(context.Context, time.Time) (net.Conn, error) // nil: of package net
	pace     time.Duration                                      // between two looks; below 0: nobody looks

	breaker breaker
	memory  memory
	pokes   chan struct{} // there is reason to look at it
}

func newServer(name string, conns int, timeout time.Duration) *server {
	s := &server{name: name, seed: serverSeed(name)}
	s.lanes.server = s
	s.lanes.slots = make(chan struct{}, conns)
	s.lanes.closing = make(chan struct{})
	s.pipes = newPipes(s, min(conns, maxPipes), timeout)
	s.clock, s.pokes = time.Now, make(chan struct{}, 1)
	s.breaker.init()
	return s
}

// belong makes the server one of the fleet's, before the first call.
func (s *server) belong(f *Fleet, config Config) {
	s.learned, s.change, s.protocol, s.dialer = config.Learned, config.Changed, config.Protocol, config.dialer
	if config.Clock != nil {
		s.clock = config.Clock
	}
	s.pace = cmp.Or(config.pace, lookEvery)
	s.memory.join(&f.memories, s)
}

// close waits for the trips under way and closes all connections.
func (s *server) close() error {
	s.pipes.close()
	s.memory.leave(s)
	return s.lanes.close()
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

// newServers checks all names and reports all faults together.
func newServers(ctx context.Context, names []string, conns int, timeout time.Duration) (servers, error) {
	var list servers
	var faults []error
	seen := map[string]bool{}
	for _, name := range names {
		s := newServer(name, conns, timeout)
		if err := s.check(ctx); err != nil {
			faults = append(faults, err)
		}
		if seen[name] {
			faults = append(faults, fmt.Errorf("memcache: server %s is named twice", name))
		}
		seen[name] = true
		list = append(list, s)
	}
	if len(list) == 0 {
		faults = append(faults, errors.New("memcache: no servers"))
	}
	return list, errors.Join(faults...)
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

// of returns the server that holds the counter: the one with the highest score.
// So a server that is added takes its share evenly from the others and moves
// nothing else (rendezvous hashing: Thaler and Ravishankar, "Using Name-Based
// Mappings to Increase Hit Rates", 1998).
func (list servers) of(h counterHash) *server {
	best, bestScore := list[0], uint64(0)
	for _, s := range list {
		if score := mix(s.seed ^ h.place()); score >= bestScore {
			best, bestScore = s, score
		}
	}
	return best
}

// serverSeed depends on the server's name alone, so that all processes place
// alike.
func serverSeed(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return mix(h.Sum64())
}

// mix is the finalizer of splitmix64 (Steele, Lea and Flood, "Fast Splittable
// Pseudorandom Number Generators", 2014): every bit of x bears on every bit of
// the result.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
