package soak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/counterd/counterd/loadtest/fleet"
)

const (
	// settle is how long goroutines may take to end after the last call.
	settle = 30 * time.Second
	// pipes is how many goroutines a process may have more than in the beginning: it has
	// up to two connections to a server, each with one, and in the beginning perhaps none.
	pipes = 2 * servers
	// heapFactor and heapSlack bound the live heap of the last third of the time, by that
	// of the first.
	heapFactor = 1.25
	heapSlack  = 8 << 20
	// maxSamples bounds the samples of a process.
	maxSamples = 600
	// sayEvery is the time between two lines of progress.
	sayEvery = 10 * time.Second
)

// Run runs a soak. What it finds wrong is in the report; an error says that it could not
// be run. When the context ends callers call no more, and what they were told until then is
// held against the counts; where that is nothing, the error is the context's.
func Run(ctx context.Context, config Config) (report *Report, err error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	s, err := newStage(ctx, config)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	r := &run{config: config, stage: s, callers: newCallers(s), samples: make([][]int64, processes)}
	return r.soak(ctx)
}

// run is one soak.
type run struct {
	config   Config
	stage    *stage
	callers  *callers
	killer   *killer
	baseline []int     // goroutines of each process
	samples  [][]int64 // live heap of each process
	report   Report
}

func (r *run) soak(ctx context.Context) (*Report, error) {
	warm, stop := context.WithCancel(ctx)
	r.callers.start(warm, r.config.callers(), r.config.Seed)
	fleet.Sleep(ctx, timeout)
	stop()
	r.callers.running.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var err error
	if r.baseline, err = r.goroutines(); err != nil {
		return nil, err
	}
	if err := r.load(ctx); err != nil {
		return nil, err
	}
	return r.judge(ctx)
}

// load has callers call and servers die, for the time of the run or until it is interrupted.
func (r *run) load(ctx context.Context) error {
	began := time.Now()
	loading, stop := context.WithTimeout(ctx, r.config.duration())
	defer stop()
	r.killer = &killer{stage: r.stage, callers: r.callers, rng: rand.New(rand.NewPCG(r.config.Seed, 0)), pace: min(r.config.duration()/5, 10*time.Second)}
	r.callers.start(loading, r.config.callers(), r.config.Seed+1)
	var killed, watched error
	var others sync.WaitGroup
	others.Go(func() {
		if killed = r.killer.run(loading, ctx); killed != nil {
			stop()
		}
	})
	others.Go(func() {
		if watched = r.watch(loading, began); watched != nil {
			stop()
		}
	})
	r.callers.running.Wait()
	r.report.Duration = time.Since(began)
	others.Wait()
	// What the killer found is a result of the run; but interrupted it leaves a server away.
	if killed != nil && (ctx.Err() == nil || !errors.Is(killed, ctx.Err())) {
		r.report.fault(killed)
	}
	return watched
}

// watch measures the processes until the context ends, and says how it goes.
func (r *run) watch(ctx context.Context, began time.Time) error {
	ticker := time.NewTicker(max(r.config.duration()/maxSamples, time.Second/4))
	defer ticker.Stop()
	said, calls := began, int64(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := r.stage.Alive(); err != nil {
			return err
		}
		goroutines := 0
		for i, process := range r.stage.Processes {
			g, err := measure(process.Addr)
			if err != nil {
				return err
			}
			goroutines = max(goroutines, g.goroutines)
			r.samples[i] = append(r.samples[i], g.live)
			r.report.LiveHeap = max(r.report.LiveHeap, g.live)
		}
		r.report.Goroutines = max(r.report.Goroutines, goroutines)
		if now := time.Now(); now.Sub(said) >= sayEvery {
			done := r.callers.calls.Load()
			fmt.Fprintf(r.config.progress(), "%6s  %6.0f calls/s  %d by on_error  %d goroutines  %d MiB live  slowest %s\n",
				now.Sub(began).Round(time.Second), float64(done-calls)/now.Sub(said).Seconds(), r.callers.onError.Load(),
				goroutines, r.samples[0][len(r.samples[0])-1]>>20, time.Duration(r.callers.slowest.Load()).Round(time.Millisecond))
			said, calls = now, done
		}
	}
}

// goroutines returns those of each process, once all of their connections are closed.
func (r *run) goroutines() (list []int, err error) {
	r.stage.idle()
	time.Sleep(timeout)
	for _, process := range r.stage.Processes {
		g, err := measure(process.Addr)
		if err != nil {
			return nil, err
		}
		list = append(list, g.goroutines)
	}
	return list, nil
}

// judge looks at what is left when the callers have gone, also after the end of the context.
func (r *run) judge(ctx context.Context) (*Report, error) {
	c, report := r.callers, &r.report
	report.Calls, report.Denied, report.OnError = c.calls.Load(), c.denied.Load(), c.onError.Load()
	report.Kills, report.Slowest = r.killer.kills, time.Duration(c.slowest.Load())
	if report.Slowest > timeout+cmp.Or(r.config.slack, defaultSlack) {
		report.fault(fmt.Errorf("a call took %s, the timeout is %s", report.Slowest, timeout))
	}
	all, faults := c.compare(context.WithoutCancel(ctx))
	report.Acknowledged, report.Unknown, report.Excess, report.Lost = all.acknowledged, all.unknown, all.excess, all.lost
	for _, fault := range faults {
		report.fault(fault)
	}
	select {
	case err := <-c.surprise:
		report.fault(fmt.Errorf("a call was answered with: %w", err))
	default:
	}
	if err := r.judgeHeaps(ctx); err != nil {
		return nil, err
	}
	// Goroutines end some time after the last call, and after a server is back.
	err := r.awaitGoroutines(ctx)
	if report.Interrupted = ctx.Err() != nil; report.Interrupted {
		return report, nil
	}
	return report, err
}

// judgeHeaps finds a live heap that grew. In less than the shortest run it only warms up.
func (r *run) judgeHeaps(ctx context.Context) error {
	if ctx.Err() != nil && r.report.Duration < MinDuration {
		return nil
	}
	for i, samples := range r.samples {
		if len(samples) == 0 {
			return errors.New("the run was too short to measure memory")
		}
		first, last := growth(samples)
		r.report.Heap = append(r.report.Heap, Heap{first, last})
		if float64(last) > heapFactor*float64(first)+heapSlack {
			r.report.fault(fmt.Errorf("process %d: the live heap grew from %d to %d bytes", i, first, last))
		}
	}
	return nil
}

// awaitGoroutines waits until the processes have no more goroutines than they had. Interrupted,
// it does not compare them.
func (r *run) awaitGoroutines(ctx context.Context) error {
	r.report.GoroutinesBefore = r.baseline
	if err := ctx.Err(); err != nil {
		return err
	}
	var over error
	err := fleet.Until(ctx, settle, func() error {
		now, err := r.goroutines()
		if err != nil {
			return err
		}
		over = nil
		for i, n := range now {
			if n > r.baseline[i]+pipes {
				over = errors.Join(over, fmt.Errorf("process %d has %d goroutines, in the beginning %d", i, n, r.baseline[i]))
			}
		}
		r.report.GoroutinesAfter = now
		return over
	})
	if over != nil && ctx.Err() == nil {
		r.report.fault(over)
		return nil
	}
	return err
}
