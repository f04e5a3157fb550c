package memcache

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/counterd/counterd/internal/memproto"
)

// ErrDown is what calls return at once whose server is known to be down.
var ErrDown = memproto.ErrDown

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
	// cooldown is how long a server has to be back for its next outage to be a new one, and
	// be probed quickly at first.
	cooldown = 10 * time.Second
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
	guarded
	stalls   *stallDetector
	gate     atomic.Pointer[gate] // nil: calls go
	failures atomic.Int32         // in a row
	ignored  atomic.Int64         // the instant of the first timeout since the last answer that was not counted; 0: none
	openings atomic.Uint64
	closed   atomic.Int64 // the instant when it was closed last

	mu     sync.Mutex
	fault  error     // the last failure
	since  time.Time // of the outage; zero: it is closed
	pauses *backoff.ExponentialBackOff
}

// guarded is the server that a breaker keeps calls from.
type guarded interface {
	// begin is called with the first call.
	begin()
	// probe makes an exchange as trips do, and returns nil if it is answered.
	probe(context.Context) error
	// down ends all calls that wait, with that error, and has run run in the background.
	down(cause *downError, run func(context.Context))
	// changed is called when calls go again.
	changed(Change)
	// String returns the server's name, and Unwrap takes it off an error.
	String() string
	Unwrap(error) error
}

// gate is what calls find before a server: the error that stops them, or nothing, for a
// server without any call so far.
type gate struct{ err error }

func (b *breaker) init(of guarded, stalls *stallDetector) {
	b.guarded, b.stalls = of, stalls
	b.gate.Store(new(gate))
	b.closed.Store(math.MinInt64)
	b.pauses = backoff.NewExponentialBackOff()
	b.pauses.InitialInterval, b.pauses.RandomizationFactor, b.pauses.Multiplier = firstPause, pauseSpread, 2
	b.pauses.MaxInterval = time.Duration(float64(longestPause) / (1 + pauseSpread))
}

// admit returns nil, or at once why no call can be made now.
func (b *breaker) admit() error {
	if g := b.gate.Load(); g != nil {
		return b.stopped(g)
	}
	return nil
}

func (b *breaker) stopped(g *gate) error {
	if g.err == nil && b.gate.CompareAndSwap(g, nil) {
		b.begin()
	}
	return g.err
}

// up reports whether calls go to the server.
func (b *breaker) up() bool {
	g := b.gate.Load()
	return g == nil || g.err == nil
}

// outage returns since when the server is down, and why; the zero time and nil: it is not.
func (b *breaker) outage() (since time.Time, fault error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.since, b.fault
}

// note notes what the outcome says of the server, of a call that began at that instant;
// conclusive: it had time enough to prove something.
func (b *breaker) note(err error, began int64, conclusive bool) {
	switch {
	case err == nil || memproto.IsAnswer(err):
		if b.failures.Load() != 0 || b.ignored.Load() != 0 {
			b.failures.Store(0)
			b.ignored.Store(0)
		}
	// A caller with hardly any time proves nothing, nor does what began before the
	// server was found to be back.
	case memproto.IsOutage(err) && conclusive && began >= b.closed.Load() && !b.ignores(err, began):
		if b.failures.Add(1) >= maxFailures {
			b.open(err)
		}
	}
}

// ignores reports whether a call that began at that instant ran out of time because this process
// did not run: that says nothing of the server.
func (b *breaker) ignores(err error, began int64) bool {
	if !isTimeout(err) || !b.stalls.since(began) {
		return false
	}
	now := memproto.Instant(time.Now())
	b.ignored.CompareAndSwap(0, now)
	return now-b.ignored.Load() <= int64(maxIgnoring)
}

// open has calls fail at once until a probe is answered. Of many calls that fail at the
// same time one opens the breaker.
func (b *breaker) open(cause error) {
	down := &downError{b.String(), b.Unwrap(cause)}
	b.mu.Lock()
	if !b.since.IsZero() {
		b.mu.Unlock()
		return
	}
	b.since, b.fault = time.Now(), down.cause
	b.gate.Store(&gate{down})
	b.openings.Add(1)
	first := firstProbe
	if now := memproto.Instant(b.since); b.closed.Load() == math.MinInt64 || now-b.closed.Load() > int64(cooldown) {
		b.pauses.Reset()
	} else {
		first = b.pauses.NextBackOff()
	}
	b.mu.Unlock()
	b.down(down, func(ctx context.Context) { b.probeUntilBack(ctx, first) })
}

// probeUntilBack probes a server that is down until it answers.
func (b *breaker) probeUntilBack(ctx context.Context, pause time.Duration) {
	for {
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		err := b.probe(ctx)
		b.mu.Lock()
		if err == nil {
			b.since, b.fault = time.Time{}, nil
			b.failures.Store(0)
			b.ignored.Store(0)
			b.closed.Store(memproto.Instant(time.Now()))
			b.gate.Store(nil)
			b.mu.Unlock()
			b.changed(Back)
			return
		}
		b.fault = err
		b.gate.Store(&gate{&downError{b.String(), b.fault}}) // it may be down for another reason by now
		pause = b.pauses.NextBackOff()
		b.mu.Unlock()
	}
}
