package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/counterd/counterd/loadtest/child"
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
	prepare  func(context.Context, *stage, row) (*subject, error)
	against  []string // the rows that it is compared with
	// halfOf is set in the open model: requests arrive evenly, at half the rate of that row.
	halfOf string
	rates  string // of the limits, over HTTP; "": far ones
}

// subject is what a row measures, ready to run.
type subject struct {
	begin     func() ([]step, error)      // of a slice: what its callers do
	end       func() error                // of a slice; nil: nothing to do
	asked     *asked                      // counts the calls of the store; nil: no row of the engine
	memcached string                      // the address of the server that is part of the cost; "": none
	server    *child.Child                // nil: none
	verify    func(context.Context) error // after the last slice; nil: nothing to verify
}

// step does a piece of work and returns its number of operations.
type step func() (int, error)

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
func (r row) each(newStep func() step) func() ([]step, error) {
	return func() (steps []step, err error) {
		for range r.callers {
			steps = append(steps, newStep())
		}
		return steps, nil
	}
}

// allRows returns every row, compared rows next to one another.
func allRows() (rows []row) {
	for _, stage := range []struct {
		name string
		rows []row
	}{{stageHits, hitRows()}, {stageHTTP, httpRows()}, {stageCounts, countRows()}} {
		for _, r := range stage.rows {
			r.stage = stage.name
			rows = append(rows, r)
		}
	}
	return rows
}

// Rows lists all rows, one on a line.
func Rows() (text string) {
	for _, r := range allRows() {
		text += fmt.Sprintf("  %-4s %s\n", r.id, r.name)
	}
	return text
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
