package bench

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// openTurns is how many turns a row in the open model has where others have one. One
// stall of the machine makes the p99 of a slice, so there have to be many.
const openTurns = 3

// arrivals are what happened to requests that arrived evenly, one by one.
type arrivals struct {
	latencies []time.Duration // from the moment at which each was due, not sent, to its answer
	late      []time.Duration // from the moment at which each was due until it was sent
	elapsed   time.Duration
}

// open lets n requests arrive, rate a second, whether or not those before them are
// answered: one that finds all callers busy waits, and that wait is its latency too.
// To start the clock only when it is sent would leave out what the clients of a
// server that stalls have to wait ("coordinated omission").
//
// pause is sleep, or in tests time.Sleep.
func open(ctx context.Context, steps []step, rate float64, n int, pause func(time.Duration)) (arrivals, error) {
	var (
		running sync.WaitGroup
		a       = arrivals{latencies: make([]time.Duration, n), late: make([]time.Duration, n)}
		queue   = make(chan int, n)
		began   = time.Now()
		due     = func(i int) time.Time { return began.Add(time.Duration(float64(i) / rate * float64(time.Second))) }
	)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, do := range steps {
		running.Go(func() {
			for i := range queue {
				if ctx.Err() != nil {
					return
				}
				a.late[i] = time.Since(due(i))
				if _, err := do(); err != nil {
					cancel(err)
					return
				}
				a.latencies[i] = time.Since(due(i))
			}
		})
	}
	for i := range n {
		for ahead := time.Until(due(i)); ahead > 0; ahead = time.Until(due(i)) {
			pause(ahead)
		}
		if ctx.Err() != nil {
			break
		}
		queue <- i
		// The caller that takes it would wait behind this goroutine's sleep.
		runtime.Gosched()
	}
	close(queue)
	running.Wait()
	a.elapsed = time.Since(began)
	return a, context.Cause(ctx)
}

// Latency is how long answers took in the open model, in milliseconds: percentiles
// of each slice, and their spread.
type Latency struct {
	Rate     float64 `json:"rate"`     // arrivals a second
	Requests int     `json:"requests"` // in all slices
	P50      Spread  `json:"p50"`
	P99      Spread  `json:"p99"`
	P999     Spread  `json:"p99_9"`
	LateP99  Spread  `json:"late_p99"` // of a part of the latency: until the request was sent
}

// latencyOf returns the latency in slices of that rate.
func latencyOf(rate float64, turns []arrivals) Latency {
	l := Latency{Rate: rate}
	latencies, late := make([][]time.Duration, len(turns)), make([][]time.Duration, len(turns))
	for i, a := range turns {
		latencies[i], late[i] = a.latencies, a.late
		l.Requests += len(a.latencies)
	}
	l.P50, l.P99, l.P999 = spreadOf(percentiles(latencies, 0.5)), spreadOf(percentiles(latencies, 0.99)), spreadOf(percentiles(latencies, 0.999))
	l.LateP99 = spreadOf(percentiles(late, 0.99))
	return l
}

// percentiles returns that percentile of each of several lists, in milliseconds.
func percentiles(lists [][]time.Duration, part float64) []float64 {
	out := make([]float64, len(lists))
	for i, list := range lists {
		out[i] = float64(percentile(slices.Sorted(slices.Values(list)), part).Nanoseconds()) / 1e6
	}
	return out
}
