package compare

import (
	"errors"
	"time"

	"github.com/counterd/counterd/events"
)

// limit is at most n in a window, in nanoseconds.
type limit struct {
	n, window int64
}

func limitOf(l events.Limit) limit { return limit{l.N, int64(l.Window)} }

// checkLimit finds what is wrong with a limit to compare with.
func checkLimit(l events.Limit) error {
	switch {
	case l.N < 1:
		return errors.New("compare: the limit is at least 1")
	case l.N > maxN:
		return errors.New("compare: the limit is at most 1,000,000,000: a log keeps as many times")
	case l.Window < time.Second || l.Window > events.MaxWindow || l.Window%time.Second != 0:
		return errors.New("compare: a window is 1s to 30d, in whole seconds")
	}
	return nil
}

// maxN keeps the products of a cost and an interval within an int64.
const maxN = 1_000_000_000
