package accesslog

import (
	"errors"
	"time"
)

var (
	// ErrMalformed is wrapped by the fault of a line that the format cannot read. No fault
	// holds a part of the line.
	ErrMalformed = errors.New("accesslog: malformed line")
	// ErrFiltered is wrapped by the fault of a line that the format leaves out on purpose.
	ErrFiltered = errors.New("accesslog: filtered line")
)

// fault is why a line has no record.
type fault struct {
	kind   error // ErrMalformed or ErrFiltered
	reason string
}

func (f *fault) Error() string { return f.kind.Error() + ": " + f.reason }

func (f *fault) Unwrap() error { return f.kind }

func malformed(reason string) *fault { return &fault{ErrMalformed, reason} }

func filtered(reason string) *fault { return &fault{ErrFiltered, reason} }

// Format makes records of lines. It is safe for concurrent use.
type Format interface {
	// Parse reads one line, without its end. Errors wrap ErrMalformed or ErrFiltered.
	Parse(line string) (Record, error)
	// String says what a line of the format is, for a reader whose log has none.
	String() string
}

// Record is a line of a log: when it happened, and the fields that its format was asked
// for.
type Record struct {
	Time time.Time // in the year 0 where the log's times have no year

	names  []string // the format's
	values []string // parts of the line, where that is possible
}

// Field returns the value of the field; "" where the line has none of that name, or the
// format was not asked for it.
func (r Record) Field(name string) string {
	for i, n := range r.names {
		if n == name {
			return r.values[i]
		}
	}
	return ""
}
