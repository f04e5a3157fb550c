package bench

import (
	"context"
	"errors"
	"slices"

	"github.com/counterd/counterd/loadtest/child"
	"github.com/counterd/counterd/loadtest/counted"
	"github.com/counterd/counterd/loadtest/memcached"
)

// Stages: rows of one stage share its processes, and take turns.
const (
	stageHits   = "hits"
	stageHTTP   = "http"
	stageCounts = "counts"
	stagePure   = "pure"
)

// row is one line of the table: what is done, by how many at once, and with which
// rows it is compared.
type row struct {
	id, name string
	stage    string
	callers  int
	against  []string
	// halfOf is set for a row in the open model: requests arrive evenly, at half the
	// rate that the row of that identity reached.
	halfOf  string
	rates   string // of the limits of a row over HTTP; none: far ones
	prepare func(context.Context, *stage, row) (*subject, error)
}

// subject is what a row measures, ready to run.
type subject struct {
	// before is called ahead of each slice and after behind it, whatever became of it;
	// nil: nothing is to be done.
	before, after func() error
	// steps returns what each of the callers does again and again. It is called once
	// for a slice, after before.
	steps func() ([]step, error)
	// What the cost is read from; nil: there is no such thing.
	counted   *counted.Counts
	memcached *memcached.Server
	server    *child.Child
	// inProcess is set where the work itself is done in this process, so that its
	// allocations are those of the work.
	inProcess bool
	// verify is called after the last slice, and finds work that was not done.
	verify func(context.Context) error
}

// step does one piece of work and returns how many operations that was.
type step func() (int, error)

// errSpent ends a slice early: there are no more of what it needs fresh ones of.
var errSpent = errors.New("bench: spent")

// allRows returns every row, those that are compared next to one another.
func allRows() []row {
	return slices.Concat(hitRows(), httpRows(), countRows(), pureRows())
}

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

// choose returns the rows that the config wants, and those that they are compared
// with, in the order of the table.
func choose(rows []row, wanted func(row) bool) []row {
	chosen := map[string]bool{}
	var add func(row)
	add = func(r row) {
		if chosen[r.id] {
			return
		}
		chosen[r.id] = true
		for _, other := range rows {
			if slices.Contains(r.against, other.id) || r.halfOf == other.id {
				add(other)
			}
		}
	}
	for _, r := range rows {
		if wanted(r) {
			add(r)
		}
	}
	return slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return !chosen[r.id] })
}

func (c Config) wants(r row) bool {
	return c.Rows == nil || c.Rows.MatchString(r.id+" "+r.name)
}
