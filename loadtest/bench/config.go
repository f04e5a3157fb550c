package bench

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"time"

	"github.com/counterd/counterd/hierarchy"
)

// Defaults of a Config.
const (
	DefaultRounds   = 5
	DefaultDuration = 700 * time.Millisecond
)

// Bounds of a Config: a run ends in a time that somebody waits for.
const (
	maxRounds   = 100
	maxDuration = time.Minute
)

// Config says what is measured, and with which programs.
type Config struct {
	Rounds   int            // how often each row has its turn
	Duration time.Duration  // of one turn
	Rows     *regexp.Regexp // the rows wanted, by identity and name; nil: all
	// Memcached and Counterd are the binaries. Counterd is needed for rows over
	// HTTP only.
	Memcached, Counterd string
	// Nothing is the command that runs ServeNothing, without its address.
	Nothing  []string
	Progress Progress // nil: none

	// sizes are smaller in tests.
	sizes sizes
}

// sizes are how many counters the rows have, and how long they wait.
type sizes struct {
	people  int // addresses that hit
	fresh   int // of the row of new counters, in all rounds
	full    int // counters of gomemcache with all their 142 buckets
	counted int // counters that are counted
	// patience is the longest wait for the store in one decision.
	patience time.Duration
}

// theSizes are those that the names of the rows tell. The patience is the most that
// the default grace allows: a busy machine is no failure of the store.
var theSizes = sizes{people: 10_000, fresh: 1_000_000, full: 2000, counted: 8000, patience: hierarchy.DefaultGrace / 2}

// Progress is told how far a run is. Its methods are called one at a time.
type Progress interface {
	Start(stage string, steps int)
	Add(steps int)
}

type noProgress struct{}

func (noProgress) Start(string, int) {}
func (noProgress) Add(int)           {}

// Check returns what is wrong with the config, all of it.
func (c Config) Check() error {
	rows := choose(allRows(), c.wants)
	var faults []error
	if c.Rounds < 1 || c.Rounds > maxRounds {
		faults = append(faults, fmt.Errorf("the rounds are 1 to %d", maxRounds))
	}
	if c.Duration < time.Millisecond || c.Duration > maxDuration {
		faults = append(faults, fmt.Errorf("the duration is 1ms to %s", maxDuration))
	}
	if len(rows) == 0 {
		return errors.Join(append(faults, fmt.Errorf("no row matches %s, a regular expression, as A3|B2", c.Rows))...)
	}
	needs := map[string]bool{}
	for _, r := range rows {
		needs[r.stage] = true
	}
	if needs[stageHits] || needs[stageHTTP] || needs[stageCounts] {
		if _, err := exec.LookPath(c.Memcached); err != nil {
			faults = append(faults, fmt.Errorf("memcached is needed: %w", err))
		}
	}
	if needs[stageHTTP] {
		if _, err := exec.LookPath(c.Counterd); err != nil {
			faults = append(faults, fmt.Errorf("counterd is needed for the rows over HTTP: %w", err))
		}
		if len(c.Nothing) == 0 {
			faults = append(faults, errors.New("the command of the server that does nothing is needed for the rows over HTTP"))
		}
	}
	return errors.Join(faults...)
}
