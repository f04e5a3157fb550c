package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/counterd/counterd/loadtest/child"
)

// Stages: the rows of a stage share its processes, and take turns.
const (
	stageHits   = "hits"
	stageHTTP   = "http"
	stageRPCs   = "rpcs"
	stageCounts = "counts"
)

// stages are in the order of the table.
var stages = []string{stageHits, stageHTTP, stageCounts, stageRPCs}

// row is a line of the table.
type row struct {
	id, name string
	stage    string
	callers  int
	prepare  func(context.Context, *stage, row) (*subject, error)
	against  []string // the rows that it is compared with
	rates    string   // of the limits, over HTTP; "": far ones
	ofPeer   bool     // it measures the peer, and is there only with one
}

// subject is what a row measures, ready to run.
type subject struct {
	begin     func() ([]step, error)      // of a slice: what its callers do
	end       func() error                // of a slice; nil: nothing to do
	trips     *atomic.Int64               // counts the round trips of this process; nil: it makes none
	memcached string                      // the address of the server that is part of the cost; "": none
	server    *child.Child                // nil: none
	elsewhere bool                        // its server is none of this run
	verify    func(context.Context) error // after the last slice; nil: nothing to verify
}

// step does a piece of work and returns its number of operations.
type step func() (int, error)

// eventName returns the row's own event: rows share no counter.
func (r row) eventName() string { return "bench_" + strings.ToLower(r.id) }

// title returns the identity and the name.
func (r row) title() string { return r.id + " " + r.name }

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
	for i, list := range [][]row{hitRows(), httpRows(), countRows(), rpcRows()} {
		for _, r := range list {
			r.stage = stages[i]
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

// matches reports whether the row with that title matches.
func (c Config) matches(title string) bool { return c.Rows == nil || c.Rows.MatchString(title) }

// chosen returns the matching rows and the rows that they need, in the order of the table.
func (c Config) chosen() []row {
	rows := allRows()
	needed := map[string]bool{}
	for _, r := range slices.Backward(rows) { // a row needs earlier ones only
		if c.matches(r.title()) {
			needed[r.id] = true
		}
		if needed[r.id] {
			for _, other := range r.against {
				needed[other] = true
			}
		}
	}
	return slices.DeleteFunc(rows, func(r row) bool { return !needed[r.id] || r.ofPeer && c.Peer == "" })
}
