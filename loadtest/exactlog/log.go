// Package exactlog keeps what was added to a counter, event by event, and answers from it what a
// limiter has to answer: sums over windows, the largest of them, and those above a limit.
package exactlog

import (
	"fmt"
	"iter"
	"slices"
	"time"
)

// Log is what was added to one counter, in the order of time. The zero Log is empty. Times are
// in any unit, one for all of a log.
type Log struct {
	times []int64
	upTo  []int64 // the sum of all events, each and those before it
}

// Add adds an event. It is not earlier than those before it.
func (l *Log) Add(time, by int64) {
	l.times = append(l.times, time)
	l.upTo = append(l.upTo, l.before(len(l.upTo))+by)
}

// Len returns the number of events.
func (l *Log) Len() int { return len(l.times) }

// Total returns the sum of all events.
func (l *Log) Total() int64 { return l.before(len(l.upTo)) }

// before returns the sum of the first n events.
func (l *Log) before(n int) int64 {
	if n == 0 {
		return 0
	}
	return l.upTo[n-1]
}

// Sum returns the sum of the events from the first time to the last, both included.
func (l *Log) Sum(first, last int64) int64 {
	from, _ := slices.BinarySearch(l.times, first)
	to, _ := slices.BinarySearch(l.times, last+1)
	return l.before(max(from, to)) - l.before(from)
}

// Largest returns the largest sum of any window of that length.
func (l *Log) Largest(length int64) (most int64) {
	for w := range l.windows(func(to int64) int64 { return to - length + 1 }) {
		most = max(most, w.Sum)
	}
	return most
}

// Window is a window of a log, and what it holds.
type Window struct {
	From, To int64
	Sum      int64
	// First and Last are the places of its events in the log: First up to and without Last.
	First, Last int
}

// String returns the window's clock times, in UTC, where the log's times are Unix seconds.
func (w Window) String() string {
	return fmt.Sprintf("%s to %s", time.Unix(w.From, 0).UTC().Format(time.TimeOnly), time.Unix(w.To, 0).UTC().Format(time.TimeOnly))
}

// Overfull returns each window that holds more than n, in the order of time. A function says when the
// window begins that a time is in: for none sooner than for a time before it.
func (l *Log) Overfull(n int64, begins func(time int64) int64) iter.Seq[Window] {
	return func(yield func(Window) bool) {
		for w := range l.windows(begins) {
			if w.Sum > n && !yield(w) {
				return
			}
		}
	}
}

// windows returns the window of each event, up to it. Any other window ends at a time without an
// event, and holds no more than the one that ends at the last event within it.
func (l *Log) windows(begins func(time int64) int64) iter.Seq[Window] {
	return func(yield func(Window) bool) {
		first := 0
		for i, to := range l.times {
			if i+1 < len(l.times) && l.times[i+1] == to {
				continue // the last event of a time ends the window
			}
			from := begins(to)
			for l.times[first] < from {
				first++
			}
			if !yield(Window{from, to, l.upTo[i] - l.before(first), first, i + 1}) {
				return
			}
		}
	}
}
