package run

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/counterd/counterd/loadtest/arrival"
	"github.com/counterd/counterd/loadtest/process"
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

// Config says what load is put on which target. Target, Source and Profile are needed.
type Config struct {
	Target   Target
	Source   *traffic.Source
	Profile  arrival.Profile
	Duration time.Duration // 0: DefaultDuration
	WarmUp   time.Duration // ahead of that, at the rate of its beginning, and not measured
	InFlight int           // the most requests that are sent and not answered; 0: DefaultInFlight
	// Drain is for how long after the end those that wait for a place in flight are still
	// sent; 0: DefaultDrain.
	Drain    time.Duration
	Traffic  string // what the report says of the source
	Progress Progress
	// Pause sleeps for times too short for time.Sleep; nil: time.Sleep does that too.
	Pause func(time.Duration)
	// Machine tells the machine's CPU times; nil: they are not known.
	Machine func() (process.Times, error)
}

// Progress is told how far a run is.
type Progress interface {
	Start(stage string, steps int)
	Add(steps int)
}

// Check finds what is wrong with the config.
func (c Config) Check() error {
	var faults []error
	if c.Target == nil || c.Source == nil || c.Profile == nil {
		faults = append(faults, errors.New("run: a target, a source of calls and a profile are needed"))
	}
	if c.Duration != 0 && c.Duration < MinDuration {
		faults = append(faults, fmt.Errorf("run: the duration is at least %s, not %s", MinDuration, c.Duration))
	}
	if c.WarmUp < 0 || c.Drain < 0 {
		faults = append(faults, errors.New("run: the warm-up and the drain are not negative"))
	}
	if c.InFlight < 0 || c.InFlight > MaxInFlight {
		faults = append(faults, fmt.Errorf("run: 1 to %d requests may be in flight, not %d", MaxInFlight, c.InFlight))
	}
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	c.Duration = cmp.Or(c.Duration, DefaultDuration)
	c.InFlight = cmp.Or(c.InFlight, DefaultInFlight)
	c.Drain = cmp.Or(c.Drain, DefaultDrain)
	return c
}
