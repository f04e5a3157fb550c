package bench

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/loadtest/arrival"
	"github.com/counterd/counterd/loadtest/process"
)

// drive has all callers repeat their steps until the time is over, a caller fails or has
// spent its fresh counters, or the context ends. It calls begin when all are ready, and
// returns the number of operations and their time. Each caller makes one step at least, and
// finishes its last one.
func drive(ctx context.Context, steps []step, length time.Duration, begin func() error) (ops int64, elapsed time.Duration, err error) {
	var (
		running, ready sync.WaitGroup
		total          atomic.Int64
		over           atomic.Bool
		start          = make(chan struct{})
		faults         = make([]error, len(steps))
	)
	ready.Add(len(steps))
	for i, do := range steps {
		running.Go(func() {
			done := 0
			ready.Done()
			<-start
			for again := err == nil; again; again = !over.Load() {
				n, fault := do()
				done += n
				if fault != nil {
					faults[i] = fault
					over.Store(true)
				}
			}
			total.Add(int64(done))
		})
	}
	ready.Wait()
	err = begin()
	defer context.AfterFunc(ctx, func() { over.Store(true) })()
	defer time.AfterFunc(length, func() { over.Store(true) }).Stop()
	began := time.Now()
	close(start)
	running.Wait()
	elapsed = time.Since(began)
	for _, fault := range faults {
		if err == nil && !errors.Is(fault, errSpent) {
			err = fault
		}
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return total.Load(), elapsed, err
}

// arrivals are requests that arrived evenly, one by one.
type arrivals struct {
	latencies []time.Duration // from the moment at which each was due to its answer
	late      []time.Duration // from the moment at which each was due until it was sent
	elapsed   time.Duration
}

// open lets n requests arrive at a rate, whatever becomes of earlier ones. A request that
// finds all callers busy waits, and the wait is part of its latency.
func open(ctx context.Context, steps []step, rate float64, n int, pause func(time.Duration)) (arrivals, error) {
	a := arrivals{latencies: make([]time.Duration, n), late: make([]time.Duration, n)}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.elapsed = arrival.Open{
		Due: arrival.Constant(rate).Due, Arrivals: int64(n), InFlight: len(steps), Pause: pause,
		Do: func(caller int, one arrival.Arrival) {
			a.late[one.N] = time.Since(one.Due)
			if _, err := steps[caller](); err != nil {
				cancel(err)
				return
			}
			a.latencies[one.N] = time.Since(one.Due)
		},
	}.Run(ctx).Elapsed
	return a, context.Cause(ctx)
}

// usage is the cost of some work: a difference of two readings, each since the beginning of
// the processes. Times are in nanoseconds.
type usage [usageFigures]int64

const (
	ops = iota
	elapsedTime
	clientCPU
	clientMallocs
	serverCPU
	trips // as the engine asks for them
	adds
	reads
	memcachedCPU // and as Memcached counts them
	memcachedBytes
	memcachedAdds
	memcachedGets
	usageFigures
)

func (u *usage) add(v usage, times int64) {
	for i := range u {
		u[i] += times * v[i]
	}
}

// each returns a figure for each operation.
func (u *usage) each(figure int) float64 { return float64(u[figure]) / float64(u[ops]) }

// rate returns the operations of a second.
func (u *usage) rate() float64 { return float64(u[ops]) / time.Duration(u[elapsedTime]).Seconds() }

// readSelf reads the figures of this process, which change with every reading: next to the
// slice.
func (u *usage) readSelf() error {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	cpu, err := process.CPU(os.Getpid())
	u[clientMallocs], u[clientCPU] = int64(memory.Mallocs), int64(cpu)
	return err
}

// readOthers reads the figures of other processes, and of the store.
func (u *usage) readOthers(s *subject) error {
	if s.counted != nil {
		u[trips], u[adds], u[reads] = s.counted.trips.Load(), s.counted.adds.Load(), s.counted.reads.Load()
	}
	if s.memcached != nil {
		stats, err := s.memcached.Stats()
		if err != nil {
			return err
		}
		u[memcachedCPU], u[memcachedBytes], u[memcachedAdds], u[memcachedGets] = int64(stats.CPU), stats.Bytes, stats.Adds, stats.Gets
	}
	if s.server == nil {
		return nil
	}
	cpu, err := process.CPU(s.server.PID())
	u[serverCPU] = int64(cpu)
	return err
}
