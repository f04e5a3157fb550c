// Package bench measures counterd against a plain program: the engine embedded in a program,
// the server over HTTP and gRPC, and counting.
//
// Rows that are compared take turns: in each round every row runs for a short slice, one
// after the other, and a ratio is that of two slices of one round. The report shows the
// median of the rounds, the least and the greatest. Ratios are repeatable on a machine whose
// speed changes from minute to minute; the rates of a single row are not.
//
// Memcached, counterd and the do-nothing server are child processes on loopback, which tells
// their costs apart.
package bench

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"time"

	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/loadtest/progress"
)

// Defaults and bounds of a Config.
const (
	DefaultRounds   = 5
	DefaultDuration = 700 * time.Millisecond
	maxRounds       = 100
	maxDuration     = time.Minute
)

// Config says what to measure, and with which programs.
type Config struct {
	Rounds    int
	Duration  time.Duration     // of a slice
	Rows      *regexp.Regexp    // matches identity and name; nil: all
	Counterd  string            // the program, for rows over HTTP and gRPC
	DoNothing []string          // the command that runs ServeNothing, without its address
	Peer      string            // the address of another rate limit service with the limits of the rows of RPCs; "": none
	Progress  progress.Progress // nil: none

	sizes sizes // smaller in tests
}

// sizes are numbers of counters, and the longest wait for the store in one decision.
type sizes struct {
	addresses int // that hit
	full      int // of gomemcache with all their 142 buckets
	denied    int // that deny, with as many
	counted   int // of the rows that count
	timeout   time.Duration
}

// defaultSizes are those in the names of the rows. The timeout is the longest that the
// default grace allows: a busy machine is no failure of the store.
var defaultSizes = sizes{addresses: 10_000, full: 2000, denied: 500, counted: 8000, timeout: hierarchy.DefaultGrace / 2}

// Check returns all faults of the config, joined.
func (c Config) Check() error {
	var faults []error
	fault := func(found bool, format string, args ...any) {
		if found {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	rows := c.chosen()
	fault(c.Rounds < 1 || c.Rounds > maxRounds, "the rounds are 1 to %d", maxRounds)
	fault(c.Duration < time.Millisecond || c.Duration > maxDuration, "the duration is 1ms to %s", maxDuration)
	fault(len(rows) == 0, "no row matches %s, a regular expression, as A3|B2", c.Rows)
	_, err := exec.LookPath(memcachedProgram)
	fault(err != nil, "memcached is needed: %w", err)
	has := func(stage string) bool {
		return slices.ContainsFunc(rows, func(r row) bool { return r.stage == stage })
	}
	if has(stageHTTP) || has(stageRPCs) {
		_, err := exec.LookPath(c.Counterd)
		fault(err != nil, "counterd is needed for the rows over HTTP and gRPC: %w", err)
		fault(has(stageHTTP) && len(c.DoNothing) == 0, "the do-nothing server is needed for the rows over HTTP")
	}
	return errors.Join(faults...)
}

// Estimate returns about how long a run takes.
func (c Config) Estimate() time.Duration {
	const between = 60 * time.Millisecond
	return time.Duration(len(c.chosen())*c.Rounds) * (c.Duration + c.Duration/runInPart + between)
}
