package memcache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// ErrDown is what calls return at once whose server is known to be down.
var ErrDown = errors.New("memcache: the server is down")

// How a breaker opens, and how a server that is down is probed. The longest pause and
// the longest probe together are less than two seconds: so soon is it noticed that a
// server has returned.
const (
	maxFailures  = 3 // in a row
	firstProbe   = 5 * time.Millisecond
	firstPause   = 25 * time.Millisecond
	longestPause = time.Second
	pauseSpread  = 0.25 // of a pause, to either side
	longestProbe = 800 * time.Millisecond
	// calm is how long a server has to be back for its next outage to be a new one, and
	// be probed quickly at first.
	calm = 10 * time.Second
)

// downError is why calls to a server that is down are not made.
type downError struct {
	server string
	cause  error // not unwrapped: a timeout of others is none of the caller's
}

func (e *downError) Error() string {
	return fmt.Sprintf("memcache: server %s is down: %v", e.server, e.cause)
}

func (e *downError) Is(target error) bool { return target == ErrDown }

// breaker keeps calls from a server that does not answer. It opens after a few
// failures in a row, then calls fail at once, while one goroutine probes the server.
// The first probe that is answered closes it.
type breaker struct {
	gate     atomic.Pointer[gate] // nil: calls go
	failures atomic.Int32         // in a row
	openings atomic.Uint64
	closed   atomic.Int64 // the instant when it was closed last

	mu     sync.Mutex
	fault  error     // the last failure
	since  time.Time // of the outage; zero: it is closed
	pauses *backoff.ExponentialBackOff
}

// gate is what calls find before a server: why they cannot go on, or, of a server
// that nobody has called yet, nothing.
type gate struct{ err error }

func (b *breaker) init() {
	b.gate.Store(new(gate))
	b.closed.Store(math.MinInt64)
	b.pauses = backoff.NewExponentialBackOff()
	b.pauses.InitialInterval, b.pauses.RandomizationFactor, b.pauses.Multiplier = firstPause, pauseSpread, 2
	b.pauses.MaxInterval = time.Duration(float64(longestPause) / (1 + pauseSpread))
}

// admit returns nil, or at once why no call can be made now.
func (s *server) admit() error {
	if g := s.breaker.gate.Load(); g != nil {
		return s.stopped(g)
	}
	return nil
}

func (s *server) stopped(g *gate) error {
	if g.err == nil && s.breaker.gate.CompareAndSwap(g, nil) && s.pace > 0 {
		s.pipeline.background(s.watch)
	}
	return g.err
}

// up reports whether calls go to the server.
func (s *server) up() bool {
	g := s.breaker.gate.Load()
	return g == nil || g.err == nil
}

// ended notes and tells what became of the exchange, and returns its error.
func (e *exchange) ended(err error) error {
	e.note(err)
	e.tell(err)
	return err
}

// note notes what the outcome says of the server.
func (e *exchange) note(err error) {
	b := &e.server.breaker
	switch {
	case err == nil || isAnswer(err):
		if b.failures.Load() != 0 {
			b.failures.Store(0)
		}
	// A caller with hardly any time proves nothing, nor does what began before the
	// server was found to be back.
	case isOutage(err) && e.deadline-e.now >= int64(e.timeout)/2 && e.now >= b.closed.Load():
		e.server.failed(err)
	}
}

// isOutage reports whether the error speaks for a server that is down: nobody there, or
// one who lets nobody in, no answer in time, a connection that broke, or answers that make no sense.
func isOutage(err error) bool {
	if errors.Is(err, ErrDown) || errors.Is(err, ErrClosed) || errors.Is(err, context.Canceled) {
		return false
	}
	if _, ok := errors.AsType[*dialError](err); ok || isForbidden(err) {
		return true
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return true
	}
	if _, ok := errors.AsType[syscall.Errno](err); ok {
		return true
	}
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, io.ErrClosedPipe) || errors.Is(err, errNonsense) || isNonsense(err)
}

// isForbidden reports whether the server wants to be told who asks. It is as good as not
// there.
func isForbidden(err error) bool {
	text := err.Error() // that is all that gomemcache gives
	return errors.Is(err, errNoCredentials) || strings.Contains(text, "memcache: client error: unauthenticated") || strings.Contains(text, unauthenticated)
}

// isNonsense reports whether the classic path was answered something that is no answer.
func isNonsense(err error) bool {
	text := err.Error()
	return (strings.Contains(text, "memcache: unexpected ") || strings.Contains(text, "memcache: corrupt ")) && !isAnswer(err)
}

// isAnswer reports whether the error is the server's own, in good form: then it is
// there.
func isAnswer(err error) bool {
	if _, ok := errors.AsType[refusal](err); ok || errors.Is(err, errClassic) || errors.Is(err, errNoCount) {
		return true
	}
	if isForbidden(err) {
		return false
	}
	// gomemcache has a text only.
	text := err.Error()
	return strings.Contains(text, "memcache: ") &&
		(strings.Contains(text, `"ERROR`) || strings.Contains(text, `"SERVER_ERROR`) || strings.Contains(text, `"CLIENT_ERROR`) ||
			strings.Contains(text, "memcache: client error: ") || strings.HasSuffix(text, "memcache: server error"))
}

// failed notes a failure that may be the last one in a row.
func (s *server) failed(err error) {
	if s.breaker.failures.Add(1) >= maxFailures {
		s.open(err)
	}
}

// open has calls fail at once until a probe is answered. Of many who come with their
// failures at the same time one does.
func (s *server) open(cause error) {
	b := &s.breaker
	down := &downError{s.name, plainCause(s, cause)}
	b.mu.Lock()
	if !b.since.IsZero() {
		b.mu.Unlock()
		return
	}
	b.since, b.fault = time.Now(), down.cause
	b.gate.Store(&gate{down})
	b.openings.Add(1)
	first := firstProbe
	if now := instant(b.since); b.closed.Load() == math.MinInt64 || now-b.closed.Load() > int64(calm) {
		b.pauses.Reset()
	} else {
		first = b.pauses.NextBackOff()
	}
	b.mu.Unlock()
	s.pipeline.drop(down)
	s.changed(Down)
	s.pipeline.background(func(ctx context.Context) { s.probeUntilBack(ctx, first) })
}

// plainCause takes the server's name off an error that wrap put there.
func plainCause(s *server, err error) error {
	if inner := errors.Unwrap(err); inner != nil && strings.HasPrefix(err.Error(), "memcache: server "+s.name+": ") {
		return inner
	}
	return err
}

// probeUntilBack probes a server that is down until it answers.
func (s *server) probeUntilBack(ctx context.Context, pause time.Duration) {
	b := &s.breaker
	for {
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		err := s.probe(ctx)
		b.mu.Lock()
		if err == nil {
			s.gap() // what is being mended now, without it, is not mended for it
			b.since, b.fault = time.Time{}, nil
			b.failures.Store(0)
			b.closed.Store(instant(time.Now()))
			b.gate.Store(nil)
			b.mu.Unlock()
			s.changed(Back)
			return
		}
		b.fault = err
		b.gate.Store(&gate{&downError{s.name, b.fault}}) // it may be down for another reason by now
		pause = b.pauses.NextBackOff()
		b.mu.Unlock()
	}
}

// probe makes an exchange as trips do, on a connection of its own, and finds out whether
// the server has come back empty.
func (s *server) probe(ctx context.Context) error {
	deadline := time.Now().Add(min(s.pipeline.timeout, longestProbe))
	if s.protocol == Classic {
		return s.look(ctx, deadline, nil)
	}
	conn, err := s.pipeline.dial(ctx, deadline)
	switch {
	case err == nil:
		return conn.Close()
	case errors.Is(err, errClassic):
		return s.look(ctx, deadline, nil)
	}
	return err
}

// drop ends all calls that wait for the server.
func (ps *pipeline) drop(fault error) {
	for _, p := range ps.list {
		p.drop(fault)
	}
}

// drop ends the calls that wait: at once those that were not sent, and by the reader
// those on the wire, with their connection.
func (p *pipelinedConn) drop(fault error) {
	p.mu.Lock()
	waiting := p.queue
	p.queue = nil
	p.load.Add(-int32(len(waiting)))
	if p.conn != nil {
		p.abandon(fault)
	}
	p.signal()
	p.mu.Unlock()
	for _, c := range waiting {
		c.settle(ended, fault)
	}
}
