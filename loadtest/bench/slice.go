package bench

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// drive has all callers work, each at its step again and again, until the time is
// over, one of them fails or has spent what it needs, or the context ends. It calls
// begin when all are ready, and returns how many operations were done, in which
// time; the last ones are finished, and each caller makes one step at least, however
// short the time.
func drive(ctx context.Context, steps []step, length time.Duration, begin func() error) (ops int64, elapsed time.Duration, err error) {
	var (
		running sync.WaitGroup
		ready   sync.WaitGroup
		total   atomic.Int64
		over    atomic.Bool
		void    atomic.Bool // nothing is to be done
		start   = make(chan struct{})
		stopped = make(chan error, len(steps))
	)
	ready.Add(len(steps))
	for _, do := range steps {
		running.Go(func() {
			done := 0
			ready.Done()
			<-start
			for again := !void.Load(); again; again = !over.Load() {
				n, err := do()
				done += n
				if err != nil {
					stopped <- err
					break
				}
			}
			total.Add(int64(done))
		})
	}
	ready.Wait()
	if err = begin(); err != nil {
		void.Store(true)
	}
	timer := time.NewTimer(length)
	defer timer.Stop()
	began := time.Now()
	close(start)
	if err == nil {
		select {
		case <-timer.C:
		case <-ctx.Done():
		case first := <-stopped:
			stopped <- first
		}
	}
	over.Store(true)
	running.Wait()
	elapsed = time.Since(began)
	close(stopped)
	for fault := range stopped {
		if err == nil && !errors.Is(fault, errSpent) {
			err = fault
		}
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return total.Load(), elapsed, err
}
