package bench

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/counterd/counterd/loadtest/child"
	"github.com/counterd/counterd/loadtest/memcached"
)

// Stages: the rows of a stage share its processes, and take turns.
const (
	stageHits   = "hits"
	stageHTTP   = "http"
	stageCounts = "counts"
)

// openTurns is the number of turns of a row in the open model for one of other rows: a single
// stall of the machine makes the p99 of a slice.
const openTurns = 3

// row is a line of the table.
type row struct {
	id, name string
	stage    string
	callers  int
	against  []string // the rows that it is compared with
	// halfOf is set in the open model: requests arrive evenly, at half the rate of that row.
	halfOf  string
	rates   string // of the limits, over HTTP; "": far ones
	prepare func(context.Context, *stage, row) (*subject, error)
}

// subject is what a row measures, ready to run.
type subject struct {
	before, after func() error  // of each slice; nil: nothing to do
	steps         func() []step // of the callers, in a slice
	// Sources of the costs; nil: none.
	counted   *storeCounts
	memcached *memcached.Server
	server    *child.Child
	verify    func(context.Context) error // after the last slice; nil: nothing to verify
}

// step does a piece of work and returns its number of operations.
type step func() (int, error)

// errSpent ends a slice early: no fresh counters are left.
var errSpent = errors.New("bench: spent")

// eventName returns the row's own event: rows share no counter.
func (r row) eventName() string { return "bench_" + strings.ToLower(r.id) }

// turns returns the row's slices of a round.
func (r row) turns() int {
	if r.halfOf != "" {
		return openTurns
	}
	return 1
}

// each returns a step for each caller.
func (r row) each(newStep func() step) func() []step {
	return func() []step {
		steps := make([]step, r.callers)
		for i := range steps {
			steps[i] = newStep()
		}
		return steps
	}
}

// allRows returns every row, compared rows next to one another.
func allRows() []row { return slices.Concat(hitRows(), httpRows(), countRows()) }

// RowName is the identity and the name of a row.
type RowName struct{ ID, Name string }

// Rows returns the names of all rows.
func Rows() []RowName {
	var names []RowName
	for _, r := range allRows() {
		names = append(names, RowName{r.id, r.name})
	}
	return names
}

// chosen returns the matching rows and the rows that they need, in the order of the table.
func (c Config) chosen() []row {
	rows := allRows()
	needed := map[string]bool{}
	for _, r := range slices.Backward(rows) { // a row needs earlier ones only
		if c.Rows == nil || c.Rows.MatchString(r.id+" "+r.name) {
			needed[r.id] = true
		}
		if needed[r.id] {
			needed[r.halfOf] = true
			for _, other := range r.against {
				needed[other] = true
			}
		}
	}
	return slices.DeleteFunc(rows, func(r row) bool { return !needed[r.id] })
}
