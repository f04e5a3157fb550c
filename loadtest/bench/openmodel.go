package bench

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// openSlices is how many times the length of a slice one in the open model has: its
// rate is low, and a p99.9 needs many requests.
const openSlices = 2

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

// Latency is how long answers took in the open model.
type Latency struct {
	Rate     float64 `json:"rate"`     // arrivals a second
	Requests int     `json:"requests"` // of all rounds
	// In milliseconds. LateP99 is of a part of the latency, until the request was sent.
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
	P999    float64 `json:"p99_9_ms"`
	LateP99 float64 `json:"late_p99_ms"`
}

// latencyOf returns the percentiles over all rounds.
func latencyOf(rate float64, rounds []arrivals) Latency {
	var latencies, late []time.Duration
	for _, a := range rounds {
		latencies = append(latencies, a.latencies...)
		late = append(late, a.late...)
	}
	slices.Sort(latencies)
	slices.Sort(late)
	return Latency{
		Rate: rate, Requests: len(latencies),
		P50: milliseconds(percentile(latencies, 0.5)), P99: milliseconds(percentile(latencies, 0.99)),
		P999: milliseconds(percentile(latencies, 0.999)), LateP99: milliseconds(percentile(late, 0.99)),
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
