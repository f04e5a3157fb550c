package verify

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/counterd/counterd/loadtest/fleet"
	"github.com/counterd/counterd/loadtest/verify/judge"
)

const (
	maxSlack   = time.Second      // that a busy machine may add to the timeout of a call
	closeTime  = 2 * time.Second  // that connections may take to close
	settleTime = 30 * time.Second // that a process may take to have no more than before

	// The live heap of a process at the end is bounded by that after a third of the time. All caches are
	// allocated at the start, 50 MiB with what else there is. What grows is the list of counters to repair,
	// up to repair.DefaultMaxBytes, 32 MiB: by 21 MiB if a third of it was there.
	heapFactor = 1.25
	heapSlack  = 8 << 20

	// One slow call has the load repeated, for so long. The call limit counts as broken if most
	// of so many loads at most have a slow call.
	maxLoads  = 3
	repeatFor = 30 * time.Second
)

// Soak is what a long run measures of the processes that it has started: after a third of its time,
// and after the rest.
type Soak struct {
	Slowest []time.Duration `json:"slowest_seconds"` // call of each load: the run, and repetitions after a slow call
	Longest time.Duration   `json:"longest_seconds"` // that a call may take
	Before  []Usage         `json:"before"`          // of each process, without calls
	After   []Usage         `json:"after"`           // absent if the run was interrupted

	fleet *fleet.Fleet
}

// Usage is what a process has.
type Usage struct {
	Goroutines int   `json:"goroutines"`
	Heap       int64 `json:"heap_bytes"` // that a collection leaves
}

// soak calls for a third of the time, and for the rest, and compares what the processes have. After a
// slow call it calls for some more time.
func (r *run) soak(ctx context.Context) error {
	s := &Soak{fleet: r.fleet, Longest: r.config.Timeout + r.config.maxSlack}
	r.report.Soak = s
	third := r.config.Duration / 3
	if err := r.load(ctx, third); err != nil || ctx.Err() != nil {
		return err
	}
	r.idle()
	fleet.Sleep(ctx, closeTime)
	var err error
	if s.Before, err = s.measure(); err != nil {
		return err
	}
	for length := r.config.Duration - third; s.undecided() && ctx.Err() == nil; length = min(third, repeatFor) {
		if err := r.load(ctx, length); err != nil {
			return err
		}
		s.Slowest = append(s.Slowest, time.Duration(r.slowest.Swap(0)))
	}
	r.idle()
	wrong := []error{s.slow()}
	if ctx.Err() == nil {
		wrong = append(wrong, fleet.Until(ctx, settleTime, func() error { return s.settled(2 * r.config.Fleet.Servers) }))
	}
	for _, err := range wrong {
		if err != nil && !errors.Is(err, context.Canceled) {
			r.findings.Add(judge.Violation{Check: judge.Processes, Text: err.Error()}, nil)
		}
	}
	return nil
}

// measure has each process collect what is garbage, twice: the first time leaves what is in pools.
// Then it asks it.
func (s *Soak) measure() (all []Usage, err error) {
	for _, process := range s.fleet.Processes {
		var text string
		for _, path := range []string{"/debug/pprof/heap?gc=1", "/debug/pprof/heap?gc=1", "/metrics"} {
			if text, err = fleet.Ask(process.Admin, path); err != nil {
				return nil, errors.Join(s.fleet.Alive(), err)
			}
		}
		values := map[string]float64{}
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			values[name], _ = strconv.ParseFloat(value, 64) // 0 where there is none
		}
		n, next, percent := values["go_goroutines"], values["go_memstats_next_gc_bytes"], values["go_gc_gogc_percent"]
		if n == 0 || next == 0 || percent == 0 {
			return nil, fmt.Errorf("/metrics of %s lacks goroutines and memory", process.Admin)
		}
		// The next collection begins when the heap has grown by so much over what the last one left.
		all = append(all, Usage{int(n), int64(next / (1 + percent/100))})
	}
	return all, nil
}

// settled is an error while a process has more than before: memory, or goroutines beyond the
// ones of connections to the servers.
func (s *Soak) settled(connections int) (err error) {
	s.After, err = s.measure()
	for i, after := range s.After {
		before := s.Before[i]
		if after.Goroutines > before.Goroutines+connections {
			err = errors.Join(err, fmt.Errorf("process %d has %d goroutines, and had %d in the beginning", i, after.Goroutines, before.Goroutines))
		}
		if float64(after.Heap) > heapFactor*float64(before.Heap)+heapSlack {
			err = errors.Join(err, fmt.Errorf("process %d: the live heap grew from %d to %d bytes", i, before.Heap, after.Heap))
		}
	}
	return err
}

// undecided reports whether there is no load yet, or the loads so far leave it open whether calls
// take too long: one slow call may be the machine's fault.
func (s *Soak) undecided() bool {
	slow := s.slowLoads()
	return len(s.Slowest) == 0 || slow > 0 && slow <= maxLoads/2 && len(s.Slowest)-slow <= maxLoads/2
}

func (s *Soak) slowLoads() (n int) {
	for _, slowest := range s.Slowest {
		if slowest > s.Longest {
			n++
		}
	}
	return n
}

// slow is an error if most loads had a call that took too long.
func (s *Soak) slow() error {
	if n := s.slowLoads(); n > maxLoads/2 {
		return fmt.Errorf("calls took %v; in %d of %d loads one took more than %s: repeat it on a machine without other load", s.Slowest, n, len(s.Slowest), s.Longest)
	}
	return nil
}

// rows are the lines of the report.
func (s *Soak) rows(row func(name, format string, args ...any)) {
	row("slowest", "%v of each load; more than %s in %d is wrong", s.Slowest, s.Longest, maxLoads/2+1)
	if s.After == nil {
		row("processes", "not compared in the end")
	}
	for i, after := range s.After {
		row("process", "%d: %d goroutines after a third of the time, %d in the end; live heap %.1f MiB and %.1f", i,
			s.Before[i].Goroutines, after.Goroutines, float64(s.Before[i].Heap)/(1<<20), float64(after.Heap)/(1<<20))
	}
}
