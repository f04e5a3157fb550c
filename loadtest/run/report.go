package run

import (
	"fmt"
	"os"
	"time"

	"github.com/counterd/counterd/loadtest/arrival"
	"github.com/counterd/counterd/loadtest/process"
	"github.com/counterd/counterd/loadtest/traffic"
)

// Report is what was measured.
type Report struct {
	Targets     []string `json:"targets"`
	Traffic     string   `json:"traffic"`
	Profile     string   `json:"profile"`
	Seconds     float64  `json:"seconds"` // that requests arrived
	Interrupted bool     `json:"interrupted,omitzero"`

	RateAsked float64 `json:"rate_asked"` // arrivals a second
	// RateReached is the answers a second, without failures: over the time in which requests
	// arrived, and that by which 99% of the answers were behind.
	RateReached float64 `json:"rate_reached"`
	Arrived     int64   `json:"arrived"`    // requests that came due
	Answered    int64   `json:"answered"`   // well or not
	Failed      int64   `json:"failed"`     // of these, those that were not answered, or not as the contract has it
	Unsent      int64   `json:"unsent"`     // waited for a place in flight until the end and were not sent
	BrokenOff   int64   `json:"broken_off"` // were in flight when the run was interrupted

	// Latencies count from the moment at which a request was due. Those of the unsent are in
	// Latency and in Waited, as long as they had waited at the end, and of those broken off
	// as long as they had been on their way.
	Latency  Latency            `json:"latency"`
	Kinds    map[string]Latency `json:"kinds"`
	Late     Latency            `json:"late"`   // the generator's own share: until a request was sent for which there was a place in flight
	Waited   Latency            `json:"waited"` // those for which there was none: until there was
	InFlight int                `json:"in_flight"`

	Statuses []Status `json:"statuses"`
	Hits     Hits     `json:"hits"`
	Limits   []Limit  `json:"limits"`

	Store         *Store         `json:"store,omitempty"`
	StoreNote     string         `json:"store_note,omitempty"` // why there is no Store
	Processes     []Usage        `json:"processes,omitempty"`
	ProcessesNote string         `json:"processes_note,omitempty"` // why there are none, or not all
	GeneratorCPU  float64        `json:"generator_cpu_seconds"`
	Machine       *process.Share `json:"machine,omitempty"` // this one; nil: not known

	Timeline     []Slot     `json:"timeline"`
	Distribution []Quantile `json:"distribution"`
}

// Status is a status, or what went wrong, and how often it came.
type Status struct {
	Name     string `json:"name"`
	Requests int64  `json:"requests"`
}

// Hits are hits by what became of them, those of batches by themselves.
type Hits struct {
	Admitted    int64 `json:"admitted"`
	Denied      int64 `json:"denied"`
	Unavailable int64 `json:"unavailable"` // could not be decided
	Faults      int64 `json:"faults"`      // of batches: were at fault
	OnError     int64 `json:"on_error"`    // of the others, those that were decided, wholly or in part, without the store
}

// Limit is what a limit said of hits.
type Limit struct {
	Name         string `json:"name"`
	Admitted     int64  `json:"admitted"`
	Denied       int64  `json:"denied"`
	ShadowDenied int64  `json:"shadow_denied,omitzero"`
}

// Store is what the target asked of its stores.
type Store struct {
	Trips int64   `json:"trips"` // exchanges with a server
	Reads int64   `json:"reads"` // buckets read
	Calls int64   `json:"calls"`
	Per   string  `json:"per"` // what a call is: hit, or call where there were others too
	Trip  float64 `json:"trips_per_call"`
	Read  float64 `json:"reads_per_call"`
}

// Usage is what a process of the target took.
type Usage struct {
	PID          int     `json:"pid"`
	CPUSeconds   float64 `json:"cpu_seconds"`
	Cores        float64 `json:"cores"`         // CPU seconds a second
	Microseconds float64 `json:"cpu_us_a_call"` // CPU time
	Memory       int64   `json:"memory"`        // bytes at the end
	MostMemory   int64   `json:"most_memory"`   // bytes, since the process began
}

func newReport(r *recorder, tally arrival.Tally, p arrival.Profile, span time.Duration) *Report {
	report := &Report{
		Profile: p.String(), Seconds: span.Seconds(),
		Arrived: tally.Arrived, Answered: r.answered, Failed: r.failed, BrokenOff: r.broken, Unsent: tally.UnsentTo - tally.UnsentFrom,
		Latency: r.all.latency(), Late: r.late.latency(), Waited: r.waited.latency(), Kinds: map[string]Latency{},
		Statuses: r.sortedStatuses(), Hits: r.hits, Limits: r.sortedLimits(),
		Timeline: r.timeline.report(p, span, tally.Elapsed), Distribution: r.all.distribution(),
	}
	if span > 0 {
		report.RateAsked = float64(tally.Arrived) / span.Seconds()
		report.RateReached = float64(r.answered-r.failed) / (span + r.behind(p, tally.Arrived)).Seconds()
	}
	for _, kind := range traffic.Kinds() {
		if h := r.kinds[kind]; h != nil {
			report.Kinds[kind.String()] = h.latency()
		}
	}
	return report
}

// cost fills in what lies between two readings.
func (r *Report) cost(before, after Reading, of *recorder, elapsed time.Duration) {
	r.StoreNote, r.ProcessesNote = after.StoreNote, after.ProcessesNote
	if before.StoreNote != "" {
		r.StoreNote = before.StoreNote
	}
	if r.StoreNote == "" && of.calls > 0 {
		r.Store = &Store{Trips: after.Trips - before.Trips, Reads: after.Reads - before.Reads, Calls: of.calls, Per: "hit"}
		if of.otherThan {
			r.Store.Per = "call"
		}
		r.Store.Trip = float64(r.Store.Trips) / float64(of.calls)
		r.Store.Read = float64(r.Store.Reads) / float64(of.calls)
		if r.Store.Trips < 0 || r.Store.Reads < 0 || before.restarted(after) {
			r.Store, r.StoreNote = nil, "the target began to count anew: it was restarted"
		}
	}
	for _, end := range after.Processes {
		for _, begin := range before.Processes {
			if begin.PID == end.PID {
				r.Processes = append(r.Processes, usageOf(begin, end, of.calls, elapsed))
			}
		}
	}
	if len(r.Processes) < len(before.Processes) && r.ProcessesNote == "" {
		r.ProcessesNote = fmt.Sprintf("%d of %d processes have ended", len(before.Processes)-len(r.Processes), len(before.Processes))
	}
}

// known returns the CPU time of this program and of the target's processes, which it may be
// one of.
func (r *Report) known() time.Duration {
	seconds := r.GeneratorCPU
	for _, p := range r.Processes {
		if p.PID != os.Getpid() {
			seconds += p.CPUSeconds
		}
	}
	return time.Duration(seconds * float64(time.Second))
}

func usageOf(begin, end Taken, calls int64, elapsed time.Duration) Usage {
	cpu := (end.CPU - begin.CPU).Seconds()
	return Usage{
		PID: end.PID, CPUSeconds: cpu, Cores: cpu / elapsed.Seconds(), Microseconds: cpu * 1e6 / float64(max(calls, 1)),
		Memory: end.Now, MostMemory: end.Most,
	}
}
