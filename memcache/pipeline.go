package memcache

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// maxPipes is how many connections a server has on the meta path, as measured: see
// BenchmarkPipes.
const maxPipelinedConns = 2

// pipeline keeps the shared connections to one server.
type pipeline struct {
	server  *server
	timeout time.Duration // of connecting
	// classicFor is how long it is remembered that the server is a classic one.
	classicFor time.Duration
	list       []*pipelinedConn
	tags       atomic.Uint32 // the last tag that was given out

	ctx    context.Context // of what goes on in the background
	stop   context.CancelFunc
	mu     sync.Mutex
	closed bool
	others sync.WaitGroup // what goes on in the background
}

func newPipeline(s *server, conns int, timeout time.Duration) *pipeline {
	ps := &pipeline{server: s, timeout: timeout, classicFor: classicFor}
	ps.ctx, ps.stop = context.WithCancel(context.Background())
	for range conns {
		ps.list = append(ps.list, newPipelinedConn(ps))
	}
	return ps
}

// dial opens a connection to a server that knows the meta commands, and remembers
// whether it does.
func (ps *pipeline) dial(ctx context.Context, deadline time.Time) (net.Conn, error) {
	conn, err := ps.server.dialMeta(ctx, deadline)
	ps.server.learn(err)
	return conn, err
}

// tag returns the first of n tags in a row.
func (ps *pipeline) tag(n int) uint32 { return ps.tags.Add(uint32(n)) - uint32(n) }

// next returns the connection for the next call: one that is idle, else the one with the
// fewest calls. Where all are busy another one is opened, for those who come later.
func (ps *pipeline) next(now int64) *pipelinedConn {
	best, least := ps.list[0], int32(-1)
	var shut *pipelinedConn
	for _, p := range ps.list {
		if !p.open.Load() {
			if shut == nil {
				shut = p
			}
			continue
		}
		load := p.load.Load()
		if load == 0 {
			return p
		}
		if least < 0 || load < least {
			best, least = p, load
		}
	}
	if least > 0 && shut != nil && shut.load.Load() == 0 && now >= shut.rest.Load() {
		shut.connect()
	}
	return best
}

// background runs f in a goroutine that close waits for. It reports whether it does.
func (ps *pipeline) background(f func(context.Context)) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.closed {
		return false
	}
	ps.others.Go(func() { f(ps.ctx) })
	return true
}

// close waits for the calls under way and closes the connections.
func (ps *pipeline) close() {
	ps.mu.Lock()
	ps.closed = true
	ps.mu.Unlock()
	ps.stop()
	var closing sync.WaitGroup
	for _, p := range ps.list {
		closing.Go(p.close)
	}
	closing.Wait()
	ps.others.Wait()
}
