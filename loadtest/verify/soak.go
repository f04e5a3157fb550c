package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/counterd/counterd/loadtest/fleet"
)

const (
	maxSlack   = time.Second      // that a busy machine may add to the timeout of a call
	warmUp     = time.Second      // the load before goroutines are counted for the first time
	closeTime  = 2 * time.Second  // that connections may take to close, in which the fewest goroutines count
	settleTime = 30 * time.Second // that goroutines may take to end after the last call
	maxSamples = 600              // of the heap of a process

	// A soak is so many loads. Most of them have a slow call where calls take too long. The live heap
	// of the last one is bounded by that of the first.
	loads      = 3
	heapFactor = 1.25
	heapSlack  = 8 << 20
)

// Soak is what a long run measures of the processes that it has started.
type Soak struct {
	Slowest          []time.Duration `json:"slowest_seconds"` // call of each load
	Longest          time.Duration   `json:"longest_seconds"` // that a call may take
	GoroutinesBefore []int           `json:"goroutines_before"`
	GoroutinesAfter  []int           `json:"goroutines_after"` // absent if the run was interrupted
	Heap             [][]int64       `json:"heap_bytes"`       // of each load the median of each process, live

	fleet   *fleet.Fleet
	servers int
	samples [][]int64 // of the heap of each process, in this load
}

// begin counts the goroutines of processes that have had some load: the fewest of each, when the
// connections of the load are closed.
func (s *Soak) begin(ctx context.Context) error {
	for end := time.Now().Add(closeTime); s.GoroutinesBefore == nil || time.Now().Before(end) && ctx.Err() == nil; fleet.Sleep(ctx, closeTime/20) {
		now, _, err := s.measure()
		if err != nil {
			return err
		}
		for i, n := range s.GoroutinesBefore {
			now[i] = min(now[i], n)
		}
		s.GoroutinesBefore = now
	}
	return nil
}

// watch samples the processes until the context ends.
func (s *Soak) watch(ctx context.Context, every time.Duration) error {
	for {
		fleet.Sleep(ctx, every)
		if ctx.Err() != nil {
			return nil
		}
		_, heap, err := s.measure()
		if err != nil {
			return errors.Join(s.fleet.Alive(), err)
		}
		s.samples = append(s.samples, heap)
	}
}

// measure returns the goroutines of each process, and the bytes that its last collection left.
func (s *Soak) measure() (goroutines []int, heap []int64, err error) {
	for _, process := range s.fleet.Processes {
		text, err := fleet.Ask(process.Addr, "/metrics")
		if err != nil {
			return nil, nil, err
		}
		values := map[string]float64{}
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			values[name], _ = strconv.ParseFloat(value, 64) // 0 where there is none
		}
		n, next, percent := values["go_goroutines"], values["go_memstats_next_gc_bytes"], values["go_gc_gogc_percent"]
		if n == 0 || next == 0 || percent == 0 {
			return nil, nil, fmt.Errorf("/metrics of %s lacks goroutines and memory", process.Addr)
		}
		// The next collection begins when the heap has grown by so much over what the last one left.
		goroutines, heap = append(goroutines, int(n)), append(heap, int64(next/(1+percent/100)))
	}
	return goroutines, heap, nil
}

// loaded notes a load that is over, with its slowest call.
func (s *Soak) loaded(slowest time.Duration) {
	medians := make([]int64, len(s.fleet.Processes))
	for i := range medians {
		slices.SortFunc(s.samples, func(a, b []int64) int { return cmp.Compare(a[i], b[i]) })
		if n := len(s.samples); n > 0 {
			medians[i] = s.samples[n/2][i]
		}
	}
	s.Slowest, s.Heap, s.samples = append(s.Slowest, slowest), append(s.Heap, medians), nil
}

// settled is an error while a process has more goroutines than in the beginning. Each of the up to
// two connections to a server may have one more.
func (s *Soak) settled() error {
	now, _, err := s.measure()
	for i, n := range now {
		if before := s.GoroutinesBefore[i]; n > before+2*s.servers {
			err = errors.Join(err, fmt.Errorf("process %d has %d goroutines, and had %d in the beginning", i, n, before))
		}
	}
	s.GoroutinesAfter = now
	return err
}

// wrong returns what is wrong with the loads.
func (s *Soak) wrong() (faults []error) {
	slow := 0
	for _, slowest := range s.Slowest {
		if slowest > s.Longest {
			slow++
		}
	}
	if slow > loads/2 {
		faults = append(faults, fmt.Errorf("a call took %s; in %d of %d loads one took more than %s: repeat it on a machine without other load",
			slices.Max(s.Slowest), slow, loads, s.Longest))
	}
	if len(s.Heap) < loads {
		return faults
	}
	for i, last := range s.Heap[loads-1] {
		if first := s.Heap[0][i]; float64(last) > heapFactor*float64(first)+heapSlack {
			faults = append(faults, fmt.Errorf("process %d: the live heap grew from %d to %d bytes", i, first, last))
		}
	}
	return faults
}

// rows are the lines of the report.
func (s *Soak) rows(row func(name, format string, args ...any)) {
	row("slowest", "%v of each load; more than %s in most is wrong", s.Slowest, s.Longest)
	after := "not compared in the end"
	if s.GoroutinesAfter != nil {
		after = fmt.Sprintf("%v after", s.GoroutinesAfter)
	}
	row("goroutines", "%v before, %s", s.GoroutinesBefore, after)
	for i, heap := range s.Heap {
		row("live heap", "in load %d %v bytes", i+1, heap)
	}
}
