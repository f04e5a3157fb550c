package verify

import (
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
	settleTime = 30 * time.Second // that goroutines may take to end after the last call
	warmUp     = time.Second      // the load before goroutines are counted for the first time
	maxSamples = 600              // of the heap of a process

	// The live heap of the last third of the run is bounded by that of the first.
	heapFactor = 1.25
	heapSlack  = 8 << 20

	// One slow call has the load repeated, for so long. The call limit counts as broken if most
	// of so many loads at most have a slow call.
	maxLoads  = 3
	repeatFor = 30 * time.Second
)

// Soak is what a long run measures of the processes that it has started.
type Soak struct {
	Slowest          time.Duration `json:"slowest_seconds"`
	Loads            int           `json:"loads"`      // the first, and the repetitions after a slow call
	SlowLoads        int           `json:"slow_loads"` // with a call that took too long
	Goroutines       int           `json:"goroutines"` // the most of any process
	GoroutinesBefore []int         `json:"goroutines_before"`
	GoroutinesAfter  []int         `json:"goroutines_after"` // absent if the run was interrupted
	Heap             []Heap        `json:"heap"`             // of each process
}

// Heap is the live heap of a process: the median of the first third of the run and of the last.
type Heap struct {
	First int64 `json:"first_bytes"`
	Last  int64 `json:"last_bytes"`
}

// monitor measures the processes of a soak.
type monitor struct {
	fleet   *fleet.Fleet
	servers int
	longest time.Duration // that a call may take
	heap    [][]int64     // live, of each process
	soak    Soak
}

// begin counts the goroutines of processes that have had some load: when their numbers have not
// fallen for a second, the connections of the load are closed.
func (m *monitor) begin(ctx context.Context) error {
	const pause, still = 100 * time.Millisecond, 10
	deadline := time.Now().Add(settleTime)
	for unchanged := 0; unchanged < still && time.Now().Before(deadline); unchanged++ {
		now, _, err := m.measure()
		if err != nil {
			return err
		}
		if before := m.soak.GoroutinesBefore; before == nil || slices.Compare(now, before) != 0 {
			unchanged, m.soak.GoroutinesBefore = 0, now
		}
		fleet.Sleep(ctx, pause)
	}
	return nil
}

// watch samples the processes until the context ends.
func (m *monitor) watch(ctx context.Context, every time.Duration) error {
	for {
		fleet.Sleep(ctx, every)
		if ctx.Err() != nil {
			return nil
		}
		goroutines, heap, err := m.measure()
		if err != nil {
			return errors.Join(m.fleet.Alive(), err)
		}
		for i, live := range heap {
			m.heap[i] = append(m.heap[i], live)
		}
		m.soak.Goroutines = max(m.soak.Goroutines, slices.Max(goroutines))
	}
}

// measure returns the goroutines of each process, and the bytes that its last collection left.
func (m *monitor) measure() (goroutines []int, heap []int64, err error) {
	for _, process := range m.fleet.Processes {
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

// loaded notes the slowest call of a load. It reports whether the loads so far leave it open
// whether calls take too long.
func (m *monitor) loaded(slowest time.Duration) (undecided bool) {
	s := &m.soak
	s.Loads, s.Slowest = s.Loads+1, max(s.Slowest, slowest)
	if slowest > m.longest {
		s.SlowLoads++
	}
	return s.SlowLoads > 0 && s.SlowLoads <= maxLoads/2 && s.Loads-s.SlowLoads <= maxLoads/2
}

// finish returns what was measured, and what is wrong with it. Goroutines end some time after
// the last call; they are not compared after an interrupt, nor is the heap of a run that was not
// long enough.
func (m *monitor) finish(ctx context.Context, long bool) (soak *Soak, wrong []string) {
	s := &m.soak
	if s.SlowLoads > maxLoads/2 {
		wrong = append(wrong, fmt.Sprintf("a call took %s; in %d of %d loads one took more than %s: repeat it on a machine without other load", s.Slowest, s.SlowLoads, s.Loads, m.longest))
	}
	for i, samples := range m.heap {
		if len(samples) == 0 {
			continue
		}
		third := max(len(samples)/3, 1)
		heap := Heap{median(samples[:third]), median(samples[len(samples)-third:])}
		s.Heap = append(s.Heap, heap)
		if float64(heap.Last) > heapFactor*float64(heap.First)+heapSlack && long {
			wrong = append(wrong, fmt.Sprintf("process %d: the live heap grew from %d to %d bytes", i, heap.First, heap.Last))
		}
	}
	if ctx.Err() != nil {
		return s, wrong
	}
	if err := fleet.Until(ctx, settleTime, m.settled); err != nil && ctx.Err() == nil {
		wrong = append(wrong, err.Error())
	}
	return s, wrong
}

// settled is an error while a process has more goroutines than before.
func (m *monitor) settled() (err error) {
	if m.soak.GoroutinesAfter, _, err = m.measure(); err == nil {
		err = m.compare()
	}
	return err
}

// compare holds goroutines to those of the beginning. Each of the up to two connections to a
// server may have one more.
func (m *monitor) compare() (err error) {
	for i, n := range m.soak.GoroutinesAfter {
		if before := m.soak.GoroutinesBefore[i]; n > before+2*m.servers {
			err = errors.Join(err, fmt.Errorf("process %d has %d goroutines, and had %d in the beginning", i, n, before))
		}
	}
	return err
}

func median(samples []int64) int64 {
	return slices.Sorted(slices.Values(samples))[len(samples)/2]
}

// rows are the lines of the report.
func (s *Soak) rows(row func(name, format string, args ...any)) {
	slowest := s.Slowest.Round(time.Millisecond).String()
	if s.SlowLoads > 0 {
		slowest += fmt.Sprintf(", too long in %d of %d loads; more than %d are wrong", s.SlowLoads, s.Loads, maxLoads/2)
	}
	row("slowest", "%s", slowest)
	after := "not compared in the end"
	if s.GoroutinesAfter != nil {
		after = fmt.Sprintf("%v after", s.GoroutinesAfter)
	}
	row("goroutines", "%v before, at most %d, %s", s.GoroutinesBefore, s.Goroutines, after)
	for i, heap := range s.Heap {
		row("live heap", "of process %d %.1f MiB in the first third, %.1f in the last", i, float64(heap.First)/(1<<20), float64(heap.Last)/(1<<20))
	}
}
