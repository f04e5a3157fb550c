package service

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
)

// calls counts the calls under way, so that Close can refuse new ones and wait for the rest:
//
//	call:  running++, then closed is read: if it is set, running-- and ErrClosed
//	Close: closed is set, then running++ and running--: whoever takes running to 0 closes drained
//
// Each side writes before it reads, so that at least one sees the other: Close waits for the call, or the call is
// refused.
type calls struct {
	_       [64]byte // each call writes running: fields that calls only read share no cache line with it
	running atomic.Int64
	_       [64]byte
	closed  atomic.Bool
	drained chan struct{} // is closed once Close was called and no call is under way
	once    sync.Once     // closes drained
	gaveUp  atomic.Bool   // Close no longer waits; calls may still be under way
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
	c.once.Do(func() { close(c.drained) })
}

// close refuses later calls, and waits for those under way, at most for the given time.
func (c *calls) close(timeout time.Duration) {
	c.closed.Store(true)
	c.running.Add(1) // so that leave closes drained if no call is under way
	c.leave()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-c.drained:
	case <-timer.C:
		c.gaveUp.Store(true)
	}
}

// refuseOutlived makes a result ErrClosed if Close gave up waiting and a limit of the result failed: on_error may have
// decided it only because the store was closed during the call.
func (c *calls) refuseOutlived(result *limiter.Result) {
	failed := func(s events.LimitState) bool { return s.Failed }
	if c.gaveUp.Load() && slices.ContainsFunc(result.Decision.Limits, failed) {
		*result = limiter.Result{Err: ErrClosed}
	}
}

// Close waits for the calls under way, at most for the given time. Later calls return ErrClosed, and so may a call that
// is still under way when the time is over.
func (s *Service) Close(timeout time.Duration) { s.calls.close(timeout) }

// Closed reports whether Close was called.
func (s *Service) Closed() bool { return s.calls.closed.Load() }
