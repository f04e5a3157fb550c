package oracle

import (
	"fmt"
	"iter"
	"time"
)

// Added is what was added to a counter at one time, by its stamp.
type Added struct{ Second, By int64 }

// Window is one of a limit, and what it holds.
type Window struct {
	From, To int64 // its first and its last second
	Sum      int64
	// First and Last are where its events stand in the log: First up to and without Last.
	First, Last int
}

func (w Window) String() string {
	return fmt.Sprintf("%s to %s", time.Unix(w.From, 0).UTC().Format(time.TimeOnly), time.Unix(w.To, 0).UTC().Format(time.TimeOnly))
}

// Overfull returns each window of a log that holds more than the limit, in the order of time:
// of those that hold the same events, the first. The log is in the order of its seconds.
//
// A window that is overfull and ends in a second without events holds no more than the one
// that ends at the last event within it: so only these are looked at, and none is missed.
func Overfull(log []Added, l Limit) iter.Seq[Window] {
	length := int64(l.Window / time.Second)
	step := max(l.Step, 1)
	return func(yield func(Window) bool) {
		first, sum := 0, int64(0)
		for i, added := range log {
			sum += added.By
			from := (added.Second - length + 1) / step * step
			for log[first].Second < from {
				sum -= log[first].By
				first++
			}
			lastOfItsSecond := i+1 == len(log) || log[i+1].Second > added.Second
			if lastOfItsSecond && sum > l.N && !yield(Window{from, added.Second, sum, first, i + 1}) {
				return
			}
		}
	}
}
