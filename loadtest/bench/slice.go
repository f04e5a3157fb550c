package bench

import (
	"cmp"
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

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

// reading is the figures of all processes since their beginning.
type reading struct {
	trips     int64
	mallocs   uint64
	clientCPU time.Duration
	serverCPU time.Duration
	memcached memcached.Stats
}

// readSelf reads the figures of this process, which change with every reading: next to the
// slice.
func (r *reading) readSelf() {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	r.mallocs, r.clientCPU = memory.Mallocs, process.Own()
}

// readOthers reads the figures of other processes, and of the store.
func (r *reading) readOthers(s *subject) (err error) {
	if s.trips != nil {
		r.trips = s.trips.Load()
	}
	if s.memcached != "" {
		if r.memcached, err = memcached.Read(s.memcached); err != nil {
			return err
		}
	}
	if s.server != nil {
		r.serverCPU, err = process.CPU(s.server.PID())
	}
	return err
}

// costs are figures by the names that they have in a report; without one that is not known.
type costs map[string]float64

// since returns the costs between an earlier reading and this one.
func (r *reading) since(before reading, s *subject) costs {
	took := costs{}
	cpu := func(name string, t time.Duration) {
		if process.Known {
			took[name] = float64(t.Nanoseconds()) / 1e3
		}
	}
	cpu("client_cpu_us", r.clientCPU-before.clientCPU)
	if s.trips != nil {
		took["trips"] = float64(r.trips - before.trips)
	}
	if s.server != nil {
		cpu("server_cpu_us", r.serverCPU-before.serverCPU)
	} else if !s.elsewhere {
		took["allocs"] = float64(r.mallocs - before.mallocs)
	}
	if s.memcached != "" {
		stats := r.memcached.Minus(before.memcached)
		took["adds"], took["reads"], took["bytes"] = float64(stats.Adds), float64(stats.Gets), float64(stats.Bytes)
		took["memcached_cpu_us"] = float64(stats.CPU.Nanoseconds()) / 1e3
	}
	return took
}
