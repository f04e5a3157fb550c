package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/counterd/counterd/loadtest/arrival"
	"github.com/counterd/counterd/loadtest/process"
	"github.com/counterd/counterd/loadtest/traffic"
)

// ErrUnreachable wraps errors before any load.
var ErrUnreachable = errors.New("run: the target cannot be loaded")

// Run loads the target until the end of the context, at most. An error is a fault of the
// config, or wraps ErrUnreachable.
func Run(ctx context.Context, config Config) (*Report, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	r := &runner{Config: config.withDefaults()}
	if err := r.probe(ctx); err != nil {
		return nil, err
	}
	r.warmUp(ctx)
	return r.measure(ctx, "measuring", r.Profile, r.Duration), nil
}

// runner draws calls for many goroutines.
type runner struct {
	Config
	drawing sync.Mutex
}

func (r *runner) next() traffic.Call {
	r.drawing.Lock()
	defer r.drawing.Unlock()
	return r.Source.Next()
}

// probe makes sure that the target can be loaded.
func (r *runner) probe(ctx context.Context) error {
	if err := r.Target.Probe(ctx, r.next()); err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if r.Ready != nil {
		r.Ready()
	}
	return nil
}

// warmUp loads the target as in the beginning of the run, unmeasured.
func (r *runner) warmUp(ctx context.Context) {
	if r.WarmUp > 0 {
		r.load(ctx, "warming up", r.Profile, r.WarmUp, newRecorder())
	}
}

// load loads the target for a while.
func (r *runner) load(ctx context.Context, stage string, p arrival.Profile, length time.Duration, to *recorder) arrival.Tally {
	n := arrival.Count(p, length)
	r.Progress.Start(stage, int(n))
	return arrival.Open{
		Due: p.Due, Arrivals: n, InFlight: r.InFlight, Drain: r.Drain, Pause: r.Pause,
		Do: func(a arrival.Arrival) {
			call := r.next()
			sent := time.Now()
			answer := r.Target.Do(ctx, a.N, call)
			done := time.Now()
			due := p.Due(a.N)
			seen := sample{
				kind: call.Kind, hits: len(call.Hits), waited: a.Waited, last: a.N >= n-(n+99)/100, due: due,
				sent: due + sent.Sub(a.Due), done: due + done.Sub(a.Due), answer: answer,
			}
			if ctx.Err() != nil && answer.Failed {
				to.breakOff(seen)
				return
			}
			to.record(seen)
			r.Progress.Add(1)
		},
	}.Run(ctx)
}

// measure loads the target for a while, and returns the report.
func (r *runner) measure(ctx context.Context, stage string, p arrival.Profile, length time.Duration) *Report {
	to := newRecorder()
	before, ownBefore, machineBefore := r.read(ctx), process.Own(), r.machine()
	tally := r.load(ctx, stage, p, length, to)
	machineAfter, ownAfter, after := r.machine(), process.Own(), r.read(ctx)

	span := length
	if ctx.Err() != nil {
		span = min(span, tally.Stopped)
	}
	for i := tally.Sent; i < tally.Arrived; i++ {
		to.unsent(p.Due(i), tally.Elapsed)
	}
	report := to.finish(tally, p, span)
	report.Interrupted = ctx.Err() != nil
	report.Targets, report.Traffic, report.Profile = r.Target.Names(), r.Traffic, cmp.Or(r.Arrivals, fmt.Sprint(p))
	report.InFlight = r.InFlight
	report.GeneratorCPU = (ownAfter - ownBefore).Seconds()
	report.cost(before, after, to, tally.Elapsed)
	known := ownAfter - ownBefore
	if after.Here {
		known += after.CPU - before.CPU
	}
	report.Machine = process.ShareOf(machineBefore, machineAfter, known)
	return report
}

// machine returns the CPU times of this machine; none where they are not known.
func (r *runner) machine() process.Times {
	if r.Machine == nil {
		return process.Times{}
	}
	times, err := r.Machine()
	if err != nil {
		return process.Times{} // without /proc/stat the report has no machine
	}
	return times
}

// readTimeout bounds the reading of a target.
const readTimeout = 5 * time.Second

// read reads the target, also after the end of the context.
func (r *runner) read(ctx context.Context) Reading {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	return r.Target.Read(ctx)
}
