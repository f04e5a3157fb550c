package run

import (
	"cmp"
	"time"

	"github.com/counterd/counterd/loadtest/process"
	"github.com/counterd/counterd/loadtest/traffic"
)

// Report is the result of a run.
type Report struct {
	Targets     []string `json:"targets"`
	Traffic     string   `json:"traffic"`
	Profile     string   `json:"profile"`
	Seconds     float64  `json:"seconds"` // of arrivals
	Interrupted bool     `json:"interrupted,omitzero"`

	RateAsked float64 `json:"rate_asked"` // arrivals a second
	// RateReached is the successes a second, over the time of the arrivals and the backlog at
	// their end.
	RateReached float64 `json:"rate_reached"`
	Arrived     int64   `json:"arrived"`    // requests that came due
	Answered    int64   `json:"answered"`   // also with a failure
	Failed      int64   `json:"failed"`     // without an answer of the contract
	Unsent      int64   `json:"unsent"`     // without a place in flight until the end
	BrokenOff   int64   `json:"broken_off"` // in flight at an interrupt

	// Latencies count from the moment at which a request was due, until the end for unsent ones
	// and until the interrupt for broken-off ones.
	Latency  Latency                  `json:"latency"`
	Kinds    map[traffic.Kind]Latency `json:"kinds"`
	Late     Latency                  `json:"late"`   // the generator's own share: until sent, with a place in flight
	Waited   Latency                  `json:"waited"` // until sent, after a wait for a place in flight
	InFlight int                      `json:"in_flight"`

	Statuses []Status `json:"statuses"`
	Hits     Hits     `json:"hits"`
	Limits   []Limit  `json:"limits"`

	Store        *Store         `json:"store,omitempty"`
	StoreNote    string         `json:"store_note,omitempty"` // why Store is nil
	Process      *Usage         `json:"process,omitempty"`    // nil: unknown
	GeneratorCPU float64        `json:"generator_cpu_seconds"`
	Machine      *process.Share `json:"machine,omitempty"` // of the generator; nil: unknown

	Timeline []Slot `json:"timeline"`
}

// Status is a status, or what went wrong.
type Status struct {
	Name     string `json:"name"`
	Requests int64  `json:"requests"`
}

// Hits are hits by their verdict, also each of a batch.
type Hits struct {
	Admitted    int64 `json:"admitted"`
	Denied      int64 `json:"denied"`
	Unavailable int64 `json:"unavailable"` // not decided
	Faults      int64 `json:"faults"`      // of batches
	OnError     int64 `json:"on_error"`    // of the others: decided in part without the store
}

// Limit is the verdicts of a limit.
type Limit struct {
	Name         string `json:"name"`
	Admitted     int64  `json:"admitted"`
	Denied       int64  `json:"denied"`
	ShadowDenied int64  `json:"shadow_denied,omitzero"`
}

// Store is the work of the target's stores.
type Store struct {
	Trips int64   `json:"trips"` // round trips
	Reads int64   `json:"reads"` // buckets read
	Calls int64   `json:"calls"`
	Per   string  `json:"per"` // hit, or call if there were others
	Trip  float64 `json:"trips_per_call"`
	Read  float64 `json:"reads_per_call"`
}

// Usage is the usage of the target's processes.
type Usage struct {
	Processes    int     `json:"processes"`
	CPUSeconds   float64 `json:"cpu_seconds"`
	Cores        float64 `json:"cores"`         // CPU seconds a second
	Microseconds float64 `json:"cpu_us_a_call"` // CPU time
	Memory       int64   `json:"memory"`        // bytes at the end
}

// cost adds the difference of two readings.
func (r *Report) cost(before, after Reading, of *recorder, elapsed time.Duration) {
	r.StoreNote = cmp.Or(before.StoreNote, after.StoreNote)
	if before.restarted(after) {
		r.StoreNote = cmp.Or(r.StoreNote, "the target was restarted")
		return
	}
	calls := float64(max(of.calls, 1))
	if r.StoreNote == "" && of.calls > 0 {
		r.Store = &Store{Trips: after.Trips - before.Trips, Reads: after.Reads - before.Reads, Calls: of.calls, Per: "hit"}
		r.Store.Trip, r.Store.Read = float64(r.Store.Trips)/calls, float64(r.Store.Reads)/calls
		if of.otherThan {
			r.Store.Per = "call"
		}
	}
	if n := len(after.Began); n > 0 {
		cpu := (after.CPU - before.CPU).Seconds()
		r.Process = &Usage{n, cpu, cpu / elapsed.Seconds(), cpu * 1e6 / calls, after.Memory}
	}
}
