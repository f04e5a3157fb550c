package oracle

import (
	"math"
	"sync"
)

// Forever is later than all times of events.
const Forever = math.MaxInt64

// Log keeps every event of counters, and counts by looking at all of them. Its times are of any unit.
// It is safe for concurrent use.
type Log struct {
	mu     sync.Mutex
	events map[string][]event // by counter
}

type event struct{ time, cost int64 }

// NewLog returns an empty log.
func NewLog() *Log { return &Log{events: map[string][]event{}} }

// Add adds an event of a counter.
func (l *Log) Add(counter string, time, cost int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events[counter] = append(l.events[counter], event{time, cost})
}

// Sum returns the cost of the events of a counter from the first time to the last one.
func (l *Log) Sum(counter string, first, last int64) (sum int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events[counter] {
		if e.time >= first && e.time <= last {
			sum += e.cost
		}
	}
	return sum
}

// Forget forgets a counter.
func (l *Log) Forget(counter string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.events, counter)
}
