package accesslog

import (
	"errors"
	"fmt"
	"time"
)

// ErrMalformed is what every error wraps that says what is wrong with a line. Its
// text never holds a part of the line.
var ErrMalformed = errors.New("accesslog: malformed line")

func malformed(reason string) error { return fmt.Errorf("%w: %s", ErrMalformed, reason) }

// Format makes records of lines. It is safe for concurrent use.
type Format interface {
	// Parse reads one line, without its end. Errors wrap ErrMalformed.
	Parse(line string) (Record, error)
	// String says what a line of the format is, for a reader whose log has none.
	String() string
}

// Record is a line of a log: when it happened, and the fields that its format was asked
// for.
type Record struct {
	Time time.Time

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
