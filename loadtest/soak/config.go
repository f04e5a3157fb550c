package soak

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"
)

const (
	// DefaultDuration is how long the callers call.
	DefaultDuration = 10 * time.Minute
	// DefaultCallers is how many they are.
	DefaultCallers = 32
	// MinDuration leaves time for a server to be killed and to come back.
	MinDuration = 5 * time.Second

	servers   = 3
	copies    = 2
	processes = 2
	users     = 400
	// narrowUsers are those on the narrow limits, few, so that each reaches them, also where
	// the machine has no time for many calls.
	narrowUsers = 10
	// timeout is the processes' -timeout.
	timeout = time.Second
	// defaultSlack is what a busy machine may add to an answer.
	defaultSlack = time.Second
)

// Config says what to run, and for how long.
type Config struct {
	Duration  time.Duration // 0: DefaultDuration
	Callers   int           // that call all the time; 0: DefaultCallers
	Counterd  string        // the program
	Memcached string        // the program
	Seed      uint64        // of the moments at which servers are killed
	Progress  io.Writer     // gets a line now and then; nil: nobody does

	slack time.Duration // that a busy machine may add to an answer; 0: defaultSlack
}

// Check finds what is wrong with the config.
func (c Config) Check() error {
	var faults []error
	if c.Duration != 0 && c.Duration < MinDuration {
		faults = append(faults, fmt.Errorf("it takes at least %s, not %s", MinDuration, c.Duration))
	}
	if c.Callers < 0 {
		faults = append(faults, fmt.Errorf("there cannot be %d callers", c.Callers))
	}
	for _, program := range []string{c.Counterd, c.Memcached} {
		if _, err := exec.LookPath(program); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

func (c Config) duration() time.Duration { return cmp.Or(c.Duration, DefaultDuration) }

// longest is how long a call may take.
func (c Config) longest() time.Duration { return timeout + cmp.Or(c.slack, defaultSlack) }

func (c Config) callers() int { return cmp.Or(c.Callers, DefaultCallers) }

func (c Config) progress() io.Writer {
	if c.Progress == nil {
		return io.Discard
	}
	return c.Progress
}
