package testkit

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Stalls watches how long the machine leaves a goroutine waiting that is due. Tests of real
// processes that bound how long an answer takes allow for it: on an idle machine it is next to
// nothing.
type Stalls struct {
	longest atomic.Int64 // nanoseconds
}

// stallTick is how often the watch is due.
const stallTick = 5 * time.Millisecond

// WatchStalls watches until the test ends.
func WatchStalls(tb testing.TB) *Stalls {
	s := &Stalls{}
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			due := time.Now().Add(stallTick)
			select {
			case <-done:
				return
			case <-time.After(stallTick):
				s.note(time.Since(due))
			}
		}
	})
	tb.Cleanup(func() {
		close(done)
		running.Wait()
	})
	return s
}

func (s *Stalls) note(late time.Duration) {
	s.longest.Store(max(s.longest.Load(), int64(late))) // one goroutine notes
}

// Longest returns the longest wait so far.
func (s *Stalls) Longest() time.Duration { return time.Duration(s.longest.Load()) }
