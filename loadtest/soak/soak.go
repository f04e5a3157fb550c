package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/counterd/counterd/loadtest/fleet"
	"github.com/counterd/counterd/loadtest/process"
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
	// maxRounds is how many rounds of load there are at most, and repeatFor how long each is
	// after the first at most. A call that took too long makes the next one: the bound is
	// believed broken when that happened in most of them.
	maxRounds = 3
	repeatFor = 30 * time.Second
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
	baseline []int           // goroutines of each process
	samples  [][]int64       // live heap of each process
	slow     []time.Duration // the slowest call of each round
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
	r.killer = &killer{stage: r.stage, callers: r.callers, rng: rand.New(rand.NewPCG(r.config.Seed, 0))}
	before, ownBefore := r.used()
	for length := r.config.duration(); ; length = min(length, repeatFor) {
		if err := r.load(ctx, length); err != nil {
			return nil, err
		}
		if ctx.Err() != nil || len(r.report.Faults) > 0 || !r.another() {
			break
		}
		fmt.Fprintf(r.config.progress(), "a call took %s: callers call for %s once more, to see whether that happens again\n",
			r.slow[len(r.slow)-1].Round(time.Millisecond), min(length, repeatFor))
	}
	after, ownAfter := r.used()
	r.report.Machine = process.ShareOf(before, after, ownAfter-ownBefore)
	return r.judge(ctx)
}

// used returns the CPU times of this machine, and of it that of this program and all that it
// has started; none where they are not known.
func (r *run) used() (machine process.Times, own time.Duration) {
	machine, err := process.Machine()
	if err != nil {
		return process.Times{}, 0 // a system without /proc/stat: the report has no machine
	}
	own, err = process.Ended()
	if err != nil {
		return process.Times{}, 0
	}
	pids := []int{os.Getpid()}
	for _, started := range slices.Concat(r.stage.Processes, r.stage.Servers) {
		pids = append(pids, started.PID())
	}
	for _, pid := range pids {
		cpu, err := process.CPU(pid)
		if err != nil {
			continue // it has been killed, and is among those that ended
		}
		own += cpu
	}
	return machine, own
}

// tooSlow returns in how many rounds a call took too long.
func (r *run) tooSlow() (n int) {
	for _, slowest := range r.slow {
		if slowest > r.config.longest() {
			n++
		}
	}
	return n
}

// another reports whether the rounds so far leave it open whether calls take too long.
func (r *run) another() bool {
	slow := r.tooSlow()
	return slow <= maxRounds/2 && len(r.slow)-slow <= maxRounds/2 && slow > 0
}

// load has callers call and servers die, for a time or until the run is interrupted.
func (r *run) load(ctx context.Context, length time.Duration) error {
	began, round := time.Now(), uint64(len(r.slow))
	loading, stop := context.WithTimeout(ctx, length)
	defer stop()
	r.killer.pace = min(length/5, 10*time.Second)
	r.callers.start(loading, r.config.callers(), r.config.Seed+1+round)
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
	r.report.Duration += time.Since(began)
	others.Wait()
	r.slow = append(r.slow, time.Duration(r.callers.slowest.Swap(0)))
	// What the killer found is a result of the run; but interrupted it leaves a server away.
	if killed != nil && (ctx.Err() == nil || !errors.Is(killed, ctx.Err())) {
		r.report.fault(killed)
	}
	return watched
}

// watch measures the processes until the context ends, and says how it goes.
func (r *run) watch(ctx context.Context, began time.Time) error {
	ticker := time.NewTicker(max(r.config.duration()/maxSamples, time.Second/4)) // as in every round
	defer ticker.Stop()
	said, calls := began, r.callers.calls.Load()
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
	report.Kills = r.killer.kills
	r.judgeSlowest()
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

// judgeSlowest finds that calls took too long in most of the rounds that there may be.
func (r *run) judgeSlowest() {
	report := &r.report
	report.Slowest, report.Rounds, report.SlowRounds = slices.Max(append(r.slow, 0)), len(r.slow), r.tooSlow()
	if report.SlowRounds > maxRounds/2 {
		report.fault(fmt.Errorf("a call took %s, the timeout is %s; in %d of %d rounds of load one took more than %s",
			report.Slowest, timeout, report.SlowRounds, report.Rounds, r.config.longest()))
	}
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
