package events

import (
	"math"
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
	if days, found := strings.CutSuffix(s, "d"); found {
		n, err := strconv.ParseUint(days, 10, 32)
		if err != nil || n > math.MaxInt64/uint64(24*time.Hour) {
			return 0, &DurationError{"days are written as a whole number, as in 7d"}
		}
		d = time.Duration(n) * 24 * time.Hour
	} else {
		var err error
		if d, err = time.ParseDuration(s); err != nil {
			return 0, &DurationError{"it is written like 90s, 15m, 24h or 7d"}
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

// FormatDuration writes whole seconds in the largest of h, m and s that divides
// them: 90s, 15m, 24h. ParseDuration reads it back.
func FormatDuration(d time.Duration) string {
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
