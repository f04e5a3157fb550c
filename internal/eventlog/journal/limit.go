package journal

import (
	"fmt"

	"github.com/counterd/counterd/events"
)

const (
	second = 1000
	minute = 60 * second
	hour   = 60 * minute
)

// Limit is at most Ceiling in a window; or a token bucket, if it has a Rate.
type Limit struct {
	// Window is in milliseconds: whole seconds from a minute on. In that time Rate tokens return to
	// a token bucket.
	Window int64
	// Ceiling is how many tokens a token bucket holds: its burst.
	Ceiling int64
	// Rate is of a token bucket; 0: the limit is a window.
	Rate int64
	// Shadow limits take no part in verdicts. Windows in shadow are no part of the log.
	Shadow bool

	// Of a token bucket in a header: its level at the floor, and the time after which that knows all
	// events; 0: it knows all that matter.
	level, since int64
}

// LimitFrom returns the limit as a log keeps it, with that ceiling. Of a fixed window it is a sliding one of the longest
// length: only sizes are computed with it.
func LimitFrom(l events.Limit, ceiling int64) Limit {
	limit := Limit{Window: l.LongestWindow().Milliseconds(), Ceiling: ceiling}
	if l.Burst > 0 {
		limit.Rate = l.N
	}
	return limit
}

// slides returns by what the window moves.
func (l Limit) slides() int64 {
	if l.Window < minute {
		return 1
	}
	return second
}

// Edge returns the last time that is no longer in the window that ends at now. What is later than now counts as
// well: a clock may be ahead.
func (l Limit) Edge(now int64) int64 {
	if l.slides() == second {
		now = endOfSecond(now)
	}
	return now - l.Window
}

// Leaves returns the first moment at which a time is no longer in the window.
func (l Limit) Leaves(time int64) int64 { return time - time%l.slides() + l.Window }

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
	if l.Window <= 0 || l.Window > maxTime || l.Ceiling < 0 || l.Ceiling > maxCeiling {
		return false
	}
	if l.isBucket() {
		return l.Rate > 0 && l.Rate <= maxRate && l.Ceiling <= l.Rate*maxRefill/l.Window
	}
	return l.Window%l.slides() == 0
}

// enforced appends the limits that take part in verdicts to dst, and token buckets in shadow: the
// log keeps their levels.
func enforced(dst, limits []Limit) ([]Limit, error) {
	for _, l := range limits {
		if !l.valid() {
			return dst, fmt.Errorf("%w: limit of %d in %d ms", ErrOutOfRange, l.Ceiling, l.Window)
		}
		if l.level, l.since = 0, 0; !l.Shadow || l.isBucket() {
			dst = append(dst, l)
		}
	}
	if len(dst) > maxLimits {
		return dst, fmt.Errorf("%w: %d limits", ErrOutOfRange, len(dst))
	}
	return dst, nil
}

// sameRules reports whether the limits of a header are those that the limits of a reader's rules would become.
func sameRules(header, reader []Limit) bool {
	for _, l := range reader {
		if l.Shadow && !l.isBucket() {
			continue
		}
		if len(header) == 0 || !header[0].isSame(l) {
			return false
		}
		header = header[1:]
	}
	return len(header) == 0
}

// isSame reports whether the limits are the same, whatever the level.
func (l Limit) isSame(other Limit) bool {
	l.level, l.since = other.level, other.since
	return l == other
}

// LongestWindow returns the longest window, or 0. Token buckets have none.
func LongestWindow(limits []Limit) (window int64) {
	for _, l := range limits {
		if !l.isBucket() {
			window = max(window, l.Window)
		}
	}
	return window
}

// Fine returns the longest window that slides by milliseconds, or 0.
func Fine(limits []Limit) (window int64) {
	for _, l := range limits {
		if !l.isBucket() && l.slides() < second {
			window = max(window, l.Window)
		}
	}
	return window
}
