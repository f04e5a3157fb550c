// Package run loads a target in the open model: requests arrive when they are due, whatever
// becomes of earlier ones, and each latency counts from there.
//
// Most callers want [Run] with a target of [NewHTTP] or [NewEmbedded], or [FindMax], which
// looks for the highest rate that the target sustains.
//
// Memory is bounded for any length of a run: waiting requests are two numbers, latencies are
// histograms, and the timeline merges its slots as it grows.
package run

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/counterd/counterd/loadtest/arrival"
	"github.com/counterd/counterd/loadtest/columns"
	"github.com/counterd/counterd/loadtest/process"
	"github.com/counterd/counterd/loadtest/progress"
	"github.com/counterd/counterd/loadtest/share"
	"github.com/counterd/counterd/loadtest/traffic"
)

// Defaults and bounds of a Config.
const (
	DefaultDuration = 10 * time.Second
	DefaultInFlight = 10_000
	DefaultDrain    = 10 * time.Second
	MaxInFlight     = 100_000
	MinDuration     = 10 * time.Millisecond
)

// Config says which load goes to which target. Target, Source and Profile are needed.
type Config struct {
	Target   Target
	Source   *traffic.Source
	Profile  arrival.Profile
	Duration time.Duration                 // 0: DefaultDuration
	WarmUp   time.Duration                 // ahead of it, as in its beginning, unmeasured
	InFlight int                           // requests without an answer, at most; 0: DefaultInFlight
	Drain    time.Duration                 // the longest wait for a place in flight after the end; 0: DefaultDrain
	Traffic  string                        // describes the source in the report
	Arrivals string                        // describes the profile in the report; "": as Go prints it
	Ready    func()                        // called when the target has answered, ahead of the load; nil: not
	Progress progress.Progress             // nil: none
	Pause    func(time.Duration)           // sleeps, also for less than a millisecond; nil: time.Sleep
	Machine  func() (process.Times, error) // reads the machine's CPU times; nil: they are unknown
}

// Check returns all faults of the config, joined.
func (c Config) Check() error {
	var faults []error
	if c.Duration != 0 && c.Duration < MinDuration {
		faults = append(faults, fmt.Errorf("-duration is at least %s, not %s", MinDuration, c.Duration))
	}
	if c.WarmUp < 0 {
		faults = append(faults, errors.New("-warm-up is 0 or more"))
	}
	if c.InFlight < 0 || c.InFlight > MaxInFlight {
		faults = append(faults, fmt.Errorf("-max-in-flight is 1 to %d, not %d", MaxInFlight, c.InFlight))
	}
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	c.Duration = cmp.Or(c.Duration, DefaultDuration)
	c.InFlight = cmp.Or(c.InFlight, DefaultInFlight)
	c.Drain = cmp.Or(c.Drain, DefaultDrain)
	c.Progress = progress.Or(c.Progress)
	return c
}

// Bounds are what a run has to keep to succeed.
type Bounds struct {
	Failures *share.Share  // of the requests, also unsent ones; nil: all but one
	P99      time.Duration // of the latency; 0: any
}

// Broken describes the broken bounds. A run without a success measured nothing and breaks
// them. After an interrupt, requests that it broke off or kept waiting have not failed.
func (b Bounds) Broken(r *Report) (list []string) {
	failed := r.Failed
	if !r.Interrupted {
		failed += r.Unsent
	}
	switch {
	case r.Interrupted && r.Answered == 0:
	case r.Answered <= r.Failed:
		list = append(list, "no request succeeded")
	case b.Failures != nil && failed*int64(share.Whole) > int64(*b.Failures)*r.Arrived:
		list = append(list, fmt.Sprintf("%s of %s requests failed, %.3g%%, and %s%% may", columns.Grouped(failed), columns.Grouped(r.Arrived),
			100*float64(failed)/float64(r.Arrived), *b.Failures))
	}
	if most := milliseconds(b.P99); b.P99 > 0 && r.Latency.P99 > most {
		list = append(list, fmt.Sprintf("the p99 is %s ms, and may be %s ms", columns.Digits(r.Latency.P99), columns.Digits(most)))
	}
	return list
}
