package service

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
)

// calls counts the calls under way. Close ends it:
//
//	call:  running++, then closed is read: if it is set, running-- and ErrClosed
//	Close: closed is set, then running is read: until it is 0, Close waits
//
// Whichever is first, Close waits for the call, or the call is refused.
type calls struct {
	_       [64]byte // on no cache line that callers only read
	running atomic.Int64
	_       [64]byte
	closed  atomic.Bool
	ended   chan struct{} // closed when running is 0 after closed was set: no call is under way any more
	once    sync.Once     // of ended
	late    atomic.Bool   // Close no longer waits
}

// enter begins a call, which leave ends. If the service is closed, enter returns ErrClosed, and leave must not be
// called.
func (c *calls) enter() error {
	c.running.Add(1)
	if !c.closed.Load() {
		return nil
	}
	c.leave()
	return ErrClosed
}

func (c *calls) leave() {
	if c.running.Add(-1) > 0 || !c.closed.Load() {
		return
	}
	c.once.Do(func() { close(c.ended) })
}

// close refuses later calls, and waits for those under way, at most for the given time.
func (c *calls) close(longest time.Duration) {
	c.closed.Store(true)
	c.running.Add(1)
	c.leave()
	late := time.NewTimer(longest)
	defer late.Stop()
	select {
	case <-c.ended:
	case <-late.C:
		c.late.Store(true)
	}
}

// refuseLate makes a result ErrClosed that on_error decided because the store was closed under its call, or may have.
func (c *calls) refuseLate(result *limiter.Result) {
	failed := func(s events.LimitState) bool { return s.Failed }
	if c.late.Load() && slices.ContainsFunc(result.Decision.Limits, failed) {
		*result = limiter.Result{Err: ErrClosed}
	}
}

// Close waits for the calls under way, at most for the given time. Later calls return ErrClosed.
func (s *Service) Close(longest time.Duration) { s.calls.close(longest) }

// Closed reports whether Close was called.
func (s *Service) Closed() bool { return s.calls.closed.Load() }
