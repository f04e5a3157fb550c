package events

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// DurationError is a fault of a duration. It wraps ErrInvalid.
type DurationError struct {
	Reason string // what is wrong, without the value
}

func (e *DurationError) Error() string { return ErrInvalid.Error() + " duration: " + e.Reason }

func (e *DurationError) Unwrap() error { return ErrInvalid }

// ParseDuration reads a length of time in whole seconds, at least one: a Go
// duration (90s, 15m, 1h30m) or whole days (7d). Errors are a *DurationError.
func ParseDuration(s string) (time.Duration, error) {
	var d time.Duration
	if days, found := strings.CutSuffix(s, "d"); found && unitOf(s) == nil {
		n, err := strconv.ParseUint(days, 10, 32)
		if err != nil || n > math.MaxInt64/uint64(24*time.Hour) {
			return 0, &DurationError{"days are written as a whole number, as in 7d"}
		}
		d = time.Duration(n) * 24 * time.Hour
	} else {
		var err error
		if d, err = time.ParseDuration(s); err != nil {
			return 0, &DurationError{notationFault(s)}
		}
	}
	switch {
	case d < time.Second:
		return 0, &DurationError{"it is at least 1s"}
	case d%time.Second != 0:
		return 0, &DurationError{"it is in whole seconds"}
	}
	return d, nil
}

// unit is a unit of time by the words that people have for it.
type unit struct {
	name    string
	words   []string // beside the name and its plural
	written string   // in a rate, such as 5/7d
	example string   // of a duration
}

var units = []unit{
	{"second", []string{"s", "sec", "secs"}, "s", "90s"},
	{"minute", []string{"m", "min", "mins"}, "m", "15m"},
	{"hour", []string{"h", "hr", "hrs"}, "h", "24h"},
	{"day", []string{"d"}, "d", "7d"},
	{"week", []string{"w", "wk", "wks"}, "7d", "7d"},
	{"month", []string{"mo", "mon", "mth"}, "30d", "30d"},
}

// unitOf returns the unit that follows a number, or is alone, in other words than it is
// written; nil: there is none.
func unitOf(s string) *unit {
	word := strings.TrimLeft(s, "0123456789. ")
	for i := range units {
		u := &units[i]
		lower := strings.ToLower(word)
		known := lower == u.name || lower == u.name+"s" || slices.Contains(u.words, lower)
		if known && word != u.written {
			return u
		}
	}
	return nil
}

// notationFault says what is wrong with a text that is no duration.
func notationFault(s string) string {
	u := unitOf(s)
	switch {
	case isDigits(s):
		return "it has no unit: it is written like 90s, 15m, 24h or 7d"
	case u != nil && len(u.written) > 1:
		return u.name + "s are written in days, as in " + u.example
	case u != nil:
		return u.name + "s are written " + u.written + ", as in " + u.example
	}
	return "it is written like 90s, 15m, 24h or 7d"
}

// FormatDuration writes whole seconds in the largest of h, m and s that divides
// them: 90s, 15m, 24h. ParseDuration reads it back. Parts of a second are written as Go does.
func FormatDuration(d time.Duration) string {
	if d%time.Second != 0 {
		return d.String()
	}
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{time.Hour, "h"}, {time.Minute, "m"}} {
		if d >= unit.length && d%unit.length == 0 {
			return strconv.FormatInt(int64(d/unit.length), 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(d/time.Second), 10) + "s"
}
