package events

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// MaxN is the largest N of a limit.
const MaxN int64 = 1_000_000_000_000

// ParseRate reads a limit written as a rate, N/window: 5/m, 100/d, 40/8s. The
// window is s, m, h, d, week or month (30 days) for one of them, or what ParseDuration takes, up to
// MaxWindow; N is 0 to MaxN. The limit has no name. Errors wrap ErrInvalid.
func ParseRate(s string) (Limit, error) {
	count, window, found := strings.Cut(s, "/")
	n, err := strconv.ParseUint(count, 10, 64)
	switch {
	case !found || err != nil && !isDigits(count):
		return Limit{}, fmt.Errorf("%w rate: it is written N/s, N/m, N/h, N/d or N/duration, as in 5/m or 100/15m", ErrInvalid)
	case err != nil || n > uint64(MaxN):
		return Limit{}, fmt.Errorf("%w rate: N is at most %d", ErrInvalid, MaxN)
	}
	length, err := parseWindow(window)
	if u := unitOf(window); err != nil && u != nil && !strings.ContainsAny(window, "0123456789") {
		written := u.written
		if len(written) > 1 {
			written = u.name
		}
		return Limit{}, fmt.Errorf("%w rate: a %s is written %s, as in %d/%s", ErrInvalid, u.name, written, n, written)
	}
	if err != nil {
		return Limit{}, fmt.Errorf("%w rate: %s", ErrInvalid, reason(err))
	}
	return Limit{N: int64(n), Window: length}, nil
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// unitWindows are the windows that are written as a unit.
var unitWindows = [...]struct {
	name   string
	length time.Duration
}{{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour}, {"week", 7 * 24 * time.Hour}, {"month", 30 * 24 * time.Hour}}

func parseWindow(s string) (time.Duration, error) {
	for _, unit := range unitWindows {
		if s == unit.name {
			return unit.length, nil
		}
	}
	d, err := ParseDuration(s)
	switch {
	case err != nil:
		return 0, &DurationError{"a window: " + reason(err)}
	case d > MaxWindow:
		return 0, &DurationError{"a window is at most 30d"}
	}
	return d, nil
}

// reason returns what an error of this package says behind "events: invalid x: ".
func reason(err error) string {
	_, text, _ := strings.Cut(strings.TrimPrefix(err.Error(), ErrInvalid.Error()), ": ")
	return text
}

// FormatRate writes the limit as ParseRate reads it, in the shortest form: 5/m,
// 100/d, 100/15m. The name is left out, and so is the calendar.
func FormatRate(l Limit) string {
	for _, unit := range unitWindows {
		if l.Window == unit.length && (len(unit.name) == 1 || l.Calendar != nil) {
			return strconv.FormatInt(l.N, 10) + "/" + unit.name
		}
	}
	return strconv.FormatInt(l.N, 10) + "/" + FormatDuration(l.Window)
}
