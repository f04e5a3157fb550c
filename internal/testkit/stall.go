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
	s, stop := watchStalls()
	tb.Cleanup(stop)
	return s
}

// Unstalled calls a trial until it succeeds, and reports whether it does. A trial that fails is
// made again, at most twice, only if the machine has left a goroutine waiting meanwhile for at
// least that long.
func Unstalled(least time.Duration, trial func() bool) bool {
	return unstalled(least, func(*Stalls) bool { return trial() })
}

func unstalled(least time.Duration, trial func(*Stalls) bool) bool {
	for again := 2; ; again-- {
		s, stop := watchStalls()
		succeeded := trial(s)
		stop()
		if succeeded || again == 0 || s.Longest() < least {
			return succeeded
		}
	}
}

func watchStalls() (s *Stalls, stop func()) {
	s = &Stalls{}
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
	return s, func() {
		close(done)
		running.Wait()
	}
}

func (s *Stalls) note(late time.Duration) {
	s.longest.Store(max(s.longest.Load(), int64(late))) // one goroutine notes
}

// Longest returns the longest wait so far.
func (s *Stalls) Longest() time.Duration { return time.Duration(s.longest.Load()) }
