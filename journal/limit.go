package journal

import "fmt"

const (
	second = 1000
	minute = 60 * second
	hour   = 60 * minute
)

// Limit is at most Ceiling in a window.
type Limit struct {
	// Window is in milliseconds: whole seconds from a minute on.
	Window  int64
	Ceiling int64
	// Shadow limits take no part in verdicts, and no part of the log.
	Shadow bool
}

// slides returns by what the window moves.
func (l Limit) slides() int64 {
	if l.Window < minute {
		return 1
	}
	return second
}

// edge returns the last time that is no longer in the window that ends at now.
func (l Limit) edge(now int64) int64 {
	if l.slides() == second {
		now += second - 1 - now%second
	}
	return now - l.Window
}

// Leaves returns the first moment at which a time is no longer in the window.
func (l Limit) Leaves(time int64) int64 {
	return time - time%l.slides() + l.Window
}

// fits returns how many equal hits have room besides sum.
func (l Limit) fits(sum, cost, count int64) int64 {
	room := l.Ceiling - sum
	if cost*count <= room { // most hits: it saves the division
		return count
	}
	return max(0, room/cost)
}

const (
	maxCeiling = 1<<62 - 1
	maxLimits  = 64
)

func (l Limit) valid() bool {
	return l.Window > 0 && l.Window <= maxTime && l.Window%l.slides() == 0 && l.Ceiling >= 0 && l.Ceiling <= maxCeiling
}

// enforced appends the limits that take part in verdicts to dst.
func enforced(dst, limits []Limit) ([]Limit, error) {
	for _, l := range limits {
		if !l.valid() {
			return dst, fmt.Errorf("%w: limit of %d in %d ms", ErrOutOfRange, l.Ceiling, l.Window)
		}
		if !l.Shadow {
			dst = append(dst, l)
		}
	}
	if len(dst) > maxLimits {
		return dst, fmt.Errorf("%w: %d limits", ErrOutOfRange, len(dst))
	}
	return dst, nil
}

// longest returns the longest window of at most bound milliseconds, or 0.
func longest(limits []Limit, bound int64) (window int64) {
	for _, l := range limits {
		if l.Window <= bound {
			window = max(window, l.Window)
		}
	}
	return window
}
