package bench

import (
	"cmp"
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/counterd/counterd/loadtest/arrival"
	"github.com/counterd/counterd/loadtest/memcached"
	"github.com/counterd/counterd/loadtest/process"
)

// drive has all callers repeat their steps until the time is over, a caller fails, or the
// context ends. It calls begin when all are ready, and returns the number of operations and
// their time. Each caller makes one step at least, and finishes its last one.
func drive(ctx context.Context, steps []step, length time.Duration, begin func() error) (ops int64, elapsed time.Duration, err error) {
	var (
		running errgroup.Group
		ready   sync.WaitGroup
		total   atomic.Int64
		over    atomic.Bool
		start   = make(chan struct{})
	)
	ready.Add(len(steps))
	for _, do := range steps {
		running.Go(func() (fault error) {
			done := 0
			ready.Done()
			<-start
			for again := err == nil; again && fault == nil; again = !over.Load() {
				var n int
				n, fault = do()
				done += n
			}
			over.Store(true)
			total.Add(int64(done))
			return fault
		})
	}
	ready.Wait()
	err = begin()
	defer context.AfterFunc(ctx, func() { over.Store(true) })()
	defer time.AfterFunc(length, func() { over.Store(true) }).Stop()
	began := time.Now()
	close(start)
	fault := running.Wait()
	return total.Load(), time.Since(began), cmp.Or(ctx.Err(), err, fault)
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
	trips
	adds // and reads: as the engine asks for them, without one as Memcached counts them
	reads
	memcachedCPU
	memcachedBytes
	usageFigures
)

func (u *usage) add(v usage) {
	for i := range u {
		u[i] += v[i]
	}
}

// each returns a figure for each operation.
func (u *usage) each(figure int) float64 { return float64(u[figure]) / float64(u[ops]) }

// rate returns the operations of a second.
func (u *usage) rate() float64 { return float64(u[ops]) / time.Duration(u[elapsedTime]).Seconds() }

// reading is one of the figures of all processes.
type reading struct {
	usage
	stats memcached.Stats
}

// readSelf reads the figures of this process, which change with every reading: next to the
// slice.
func (r *reading) readSelf() {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	r.usage[clientMallocs], r.usage[clientCPU] = int64(memory.Mallocs), int64(process.Own())
}

// readOthers reads the figures of other processes, and of the store.
func (r *reading) readOthers(s *subject) (err error) {
	if s.asked != nil {
		r.usage[trips], r.usage[adds], r.usage[reads] = s.asked.trips.Load(), s.asked.adds.Load(), s.asked.reads.Load()
	}
	if s.memcached != "" {
		if r.stats, err = memcached.Read(s.memcached); err != nil {
			return err
		}
	}
	if s.server != nil {
		var cpu time.Duration
		cpu, err = process.CPU(s.server.PID())
		r.usage[serverCPU] = int64(cpu)
	}
	return err
}

// since returns the cost between an earlier reading and this one.
func (r *reading) since(before reading, s *subject) usage {
	took := r.usage
	for i := range took {
		took[i] -= before.usage[i]
	}
	stats := r.stats.Minus(before.stats)
	took[memcachedCPU], took[memcachedBytes] = int64(stats.CPU), stats.Bytes
	if s.asked == nil {
		took[adds], took[reads] = stats.Adds, stats.Gets
	}
	return took
}
