package bench

import (
	"context"
	"slices"
	"time"

	"github.com/counterd/counterd/loadtest/arrival"
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
//
// pause is process.Sleep, or in tests time.Sleep.
func open(ctx context.Context, steps []step, rate float64, n int, pause func(time.Duration)) (arrivals, error) {
	a := arrivals{latencies: make([]time.Duration, n), late: make([]time.Duration, n)}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	tally := arrival.Open{
		Due: arrival.Constant(rate).Due, Arrivals: int64(n), InFlight: len(steps), Pause: pause,
		Do: func(caller int, one arrival.Arrival) {
			a.late[one.N] = time.Since(one.Due)
			if _, err := steps[caller](); err != nil {
				cancel(err)
				return
			}
			a.latencies[one.N] = time.Since(one.Due)
		},
	}.Run(ctx)
	a.elapsed = tally.Elapsed
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
