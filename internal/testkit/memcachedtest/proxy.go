package memcachedtest

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy is a stretch of network between one process and one server, which can be made
// worse. What it carries it does not look into.
type Proxy struct {
	Addr string // where it listens, whatever is wrong with it

	tb       testing.TB
	upstream string
	mu       sync.Mutex
	listener net.Listener // nil: connections are refused
	ways     [2]Way       // to the server, and back
	changed  chan struct{}
	links    map[*link]bool
	running  sync.WaitGroup
}

// Way is how bytes travel in one direction. The zero Way passes them on at once.
type Way struct {
	// Each piece arrives later by this, and by up to so much more; in their order.
	Latency, Jitter time.Duration
	// Held keeps bytes back until the way is no longer held. None is lost: they arrive
	// late, as what TCP sends again after a partition does.
	Held bool
}

// The two directions.
const (
	toServer = iota
	toClient
)

// chunks is how many pieces may be on the way in one direction.
const chunks = 1024

// link is a connection through the proxy.
type link struct {
	client, server *net.TCPConn
	silent, ended  chan struct{} // closed when it is
	silence, end   func()
}

// chunk is a piece of what was read; without data it is the end.
type chunk struct {
	data []byte
	read time.Time
}

// StartProxy runs a proxy in front of a server that listens on TCP until the test ends.
func StartProxy(tb testing.TB, s *Server) *Proxy {
	tb.Helper()
	p := newProxy(tb, s)
	var err error
	for range 20 {
		p.Addr = freeAddr(tb)
		if err = p.accept(); err == nil {
			return p // else another process took the port in between
		}
	}
	tb.Fatalf("memcachedtest: %v", err)
	return nil
}

// StartProxyAt is StartProxy, at that address.
func StartProxyAt(tb testing.TB, addr string, s *Server) *Proxy {
	tb.Helper()
	p := newProxy(tb, s)
	p.Addr = addr
	p.Accept()
	return p
}

func newProxy(tb testing.TB, s *Server) *Proxy {
	p := &Proxy{tb: tb, upstream: s.Addr, changed: make(chan struct{}), links: map[*link]bool{}}
	tb.Cleanup(func() {
		p.Refuse()
		p.Reset()
		p.running.Wait()
	})
	return p
}

// Route has bytes travel these ways from here on, also those under way that are held.
func (p *Proxy) Route(toServer, toClient Way) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ways = [2]Way{toServer, toClient}
	close(p.changed)
	p.changed = make(chan struct{})
}

// Partition lets nothing through in either direction, also on new connections. Heal
// ends it, and every other way that Route has set.
func (p *Proxy) Partition() { p.Route(Way{Held: true}, Way{Held: true}) }

// Heal makes both ways good again.
func (p *Proxy) Heal() { p.Route(Way{}, Way{}) }

// Reset ends all connections there are by a TCP reset, on both sides.
func (p *Proxy) Reset() {
	for _, l := range p.list() {
		l.reset()
	}
}

// Silence makes all connections there are half-open, for ever: they stay open, and what
// is sent on them gets lost. New ones are good.
func (p *Proxy) Silence() {
	for _, l := range p.list() {
		l.silence()
	}
}

// Refuse takes no connections any more. Those there are stay.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	listener := p.listener
	p.listener = nil
	p.mu.Unlock()
	if listener != nil {
		listener.Close()
	}
}

// Accept takes connections again.
func (p *Proxy) Accept() {
	p.tb.Helper()
	if err := p.accept(); err != nil {
		p.tb.Fatalf("memcachedtest: %v", err)
	}
}

func (p *Proxy) accept() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return nil
	}
	listener, err := net.Listen("tcp", p.Addr)
	if err != nil {
		return err
	}
	p.listener = listener
	p.running.Go(func() { p.serve(listener) })
	return nil
}

// Connections returns how many connections there are.
func (p *Proxy) Connections() int { return len(p.list()) }

func (p *Proxy) list() (links []*link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		links = append(links, l)
	}
	return links
}

func (p *Proxy) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return // it is closed
		}
		server, err := net.Dial("tcp", p.upstream)
		if err != nil {
			// A stopped server does the same.
			client.(*net.TCPConn).SetLinger(0)
			client.Close()
			continue
		}
		p.carry(newLink(client.(*net.TCPConn), server.(*net.TCPConn)))
	}
}

func newLink(client, server *net.TCPConn) *link {
	l := &link{client: client, server: server, silent: make(chan struct{}), ended: make(chan struct{})}
	l.silence = sync.OnceFunc(func() { close(l.silent) })
	l.end = sync.OnceFunc(func() {
		close(l.ended)
		client.Close()
		server.Close()
	})
	return l
}

func (l *link) reset() {
	l.client.SetLinger(0)
	l.server.SetLinger(0)
	l.end()
}

// carry passes on what comes on both sides, until both have ended.
func (p *Proxy) carry(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links[l] = true
	forth, back := make(chan chunk, chunks), make(chan chunk, chunks)
	p.running.Go(func() { l.read(l.client, forth) })
	p.running.Go(func() { l.read(l.server, back) })
	p.running.Go(func() {
		var both sync.WaitGroup
		both.Go(func() { p.write(l, toServer, forth, l.server) })
		both.Go(func() { p.write(l, toClient, back, l.client) })
		both.Wait()
		l.end()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	})
}

// read reads to the end, and says when that is.
func (l *link) read(from *net.TCPConn, to chan<- chunk) {
	for {
		buffer := make([]byte, 32<<10)
		n, err := from.Read(buffer)
		if n > 0 && !l.pass(to, chunk{buffer[:n], time.Now()}) {
			return
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !l.isSilent() {
				l.reset()
			}
			l.pass(to, chunk{nil, time.Now()})
			return
		}
	}
}

func (l *link) pass(to chan<- chunk, c chunk) bool {
	select {
	case to <- c:
		return true
	case <-l.ended:
		return false
	}
}

func (l *link) isSilent() bool {
	select {
	case <-l.silent:
		return true
	default:
		return false
	}
}

// write writes what was read, each piece when it is due.
func (p *Proxy) write(l *link, direction int, from <-chan chunk, to *net.TCPConn) {
	var due time.Time
	for {
		var c chunk
		select {
		case c = <-from:
		case <-l.ended:
			return
		}
		if due = p.due(direction, c.read, due); !p.await(l, direction, due) {
			return
		}
		if l.isSilent() {
			continue // lost, the end too
		}
		if c.data == nil {
			to.CloseWrite()
			return
		}
		if _, err := to.Write(c.data); err != nil {
			l.reset()
			return
		}
	}
}

// due returns when a piece arrives, not before the one ahead of it.
func (p *Proxy) due(direction int, read, before time.Time) time.Time {
	p.mu.Lock()
	way := p.ways[direction]
	p.mu.Unlock()
	at := read.Add(way.Latency)
	if way.Jitter > 0 {
		at = at.Add(rand.N(way.Jitter))
	}
	if at.Before(before) {
		return before
	}
	return at
}

// await waits until then, and until the way is not held. It reports whether the link is
// still there.
func (p *Proxy) await(l *link, direction int, until time.Time) bool {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.ended:
		return false
	}
	for {
		p.mu.Lock()
		held, changed := p.ways[direction].Held, p.changed
		p.mu.Unlock()
		if !held {
			return true
		}
		select {
		case <-changed:
		case <-l.ended:
			return false
		}
	}
}
