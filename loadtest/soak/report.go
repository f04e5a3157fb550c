package soak

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/counterd/counterd/loadtest/process"
)

// maxFaults bounds the faults that a report lists.
const maxFaults = 20

// Report is what came of a soak.
type Report struct {
	Duration         time.Duration  `json:"seconds"`
	Interrupted      bool           `json:"interrupted,omitzero"` // before its time; goroutines are not compared then
	Kills            int            `json:"kills"`
	Calls            int64          `json:"calls"`
	Denied           int64          `json:"denied"`
	OnError          int64          `json:"on_error"` // answered without the store
	Slowest          time.Duration  `json:"slowest_seconds"`
	Rounds           int            `json:"rounds"`      // of load: the first, and those that a slow call made
	SlowRounds       int            `json:"slow_rounds"` // in which a call took too long
	Acknowledged     int64          `json:"acknowledged"`
	Unknown          int64          `json:"unknown"` // may be counted, or not
	Excess           int64          `json:"excess"`  // counted beyond what was acknowledged
	Lost             int64          `json:"lost"`    // acknowledged, and not counted
	Goroutines       int            `json:"goroutines"`
	GoroutinesBefore []int          `json:"goroutines_before"`
	GoroutinesAfter  []int          `json:"goroutines_after"`
	LiveHeap         int64          `json:"live_heap_bytes"`   // most bytes that the collector left, of a process
	Heap             []Heap         `json:"heap"`              // of each process
	Machine          *process.Share `json:"machine,omitempty"` // while callers called; nil: not known
	Faults           []string       `json:"faults"`
}

// Heap is the live heap of a process: the median of the first third of the time, and of
// the last.
type Heap struct {
	First int64 `json:"first_bytes"`
	Last  int64 `json:"last_bytes"`
}

// fault adds a fault, unless there are too many.
func (r *Report) fault(err error) {
	if len(r.Faults) < maxFaults {
		r.Faults = append(r.Faults, err.Error())
	}
}

// WriteText writes the report for people.
func (r *Report) WriteText(out io.Writer) error {
	length, goroutines := r.Duration.Round(time.Second).String(), fmt.Sprintf("%v before, at most %d, ", r.GoroutinesBefore, r.Goroutines)
	if r.Interrupted {
		length += "  interrupted: what was seen until then is judged"
		goroutines += "not compared in the end"
	} else {
		goroutines += fmt.Sprintf("%v after", r.GoroutinesAfter)
	}
	slowest := r.Slowest.Round(time.Millisecond).String()
	if r.SlowRounds > 0 {
		slowest += fmt.Sprintf("  too long in %d of %d rounds of load; more than %d are wrong", r.SlowRounds, r.Rounds, maxRounds/2)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range []struct {
		name  string
		value any
	}{
		{"time", length},
		{"servers killed", r.Kills},
		{"calls", fmt.Sprintf("%d  %.0f/s", r.Calls, float64(r.Calls)/r.Duration.Seconds())},
		{"denied", r.Denied},
		{"answered by on_error", r.OnError},
		{"slowest", slowest},
		{"acknowledged", r.Acknowledged},
		{"lost", r.Lost},
		{"counted beyond", fmt.Sprintf("%d  of %d of unknown outcome", r.Excess, r.Unknown)},
		{"goroutines", goroutines},
	} {
		fmt.Fprintf(table, "%s\t%v\n", row.name, row.value)
	}
	for i, heap := range r.Heap {
		fmt.Fprintf(table, "live heap of process %d\t%.1f MiB in the first third, %.1f in the last\n", i, mebibytes(heap.First), mebibytes(heap.Last))
	}
	if r.Machine.Busy() {
		fmt.Fprintf(table, "note\tthis machine was busy: %s; repeat the soak on a quiet machine before believing a slow call\n", process.BusyMeans)
	}
	for _, fault := range r.Faults {
		fmt.Fprintf(table, "WRONG\t%s\n", fault)
	}
	return table.Flush()
}

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }
