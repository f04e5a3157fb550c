package oracle

import (
	"fmt"
	"sync"
	"time"
)

// Limit is at most N in a window, in whole seconds.
type Limit struct {
	N      int64
	Window time.Duration
}

const (
	// lateness is how much later than others, in seconds, the answer to a hit may come,
	// by its stamp, and still be held against them.
	lateness = 60
	// whole is the longest window that is looked at second by second. A longer one is
	// taken to hold the whole run.
	whole = time.Hour
)

// Counter keeps the answers for one counter. It is safe for concurrent use.
type Counter struct {
	limits []Limit

	mu     sync.Mutex
	tally  Tally
	all    int64   // admitted
	ring   []int64 // admitted, by the second of the stamp
	newest int64
	fault  error
}

// Tally is what was added to a counter.
type Tally struct {
	Acknowledged int64 // it is known to be counted
	Unknown      int64 // the caller does not know
}

// NewCounter returns a Counter whose admitted hits keep to the limits.
func NewCounter(limits ...Limit) *Counter {
	longest := time.Second
	for _, l := range limits {
		if l.Window <= whole {
			longest = max(longest, l.Window)
		}
	}
	return &Counter{limits: limits, ring: make([]int64, int64(longest/time.Second)+lateness)}
}

// Admit notes a hit that was decided, and admitted.
func (c *Counter) Admit(second, cost int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tally.Acknowledged += cost
	c.all += cost
	c.advance(second)
	if !c.remembers(second) {
		c.blame(fmt.Errorf("oracle: a hit of second %d was answered %ds later", second, c.newest-second))
		return
	}
	*c.at(second) += cost
	for _, l := range c.limits {
		c.check(second, l)
	}
}

// Acknowledge notes what was added without being decided, Doubt what may have been.
func (c *Counter) Acknowledge(by int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tally.Acknowledged += by
}

// Doubt notes an unknown outcome.
func (c *Counter) Doubt(by int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tally.Unknown += by
}

// Tally returns what was added so far.
func (c *Counter) Tally() Tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tally
}

// Fault returns the first window that was seen to hold more than its limit, as an error.
func (c *Counter) Fault() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fault
}

// advance makes room for the second, with mu held.
func (c *Counter) advance(second int64) {
	if c.newest == 0 || second-c.newest >= int64(len(c.ring)) {
		clear(c.ring)
		c.newest = second
	}
	for c.newest < second {
		c.newest++
		*c.at(c.newest) = 0
	}
}

func (c *Counter) at(second int64) *int64 { return &c.ring[second%int64(len(c.ring))] }

func (c *Counter) remembers(second int64) bool {
	return second <= c.newest && second > c.newest-int64(len(c.ring))
}

// check looks at all windows that hold the second, with mu held.
func (c *Counter) check(second int64, l Limit) {
	if l.Window > whole {
		if c.all > l.N {
			c.blame(fmt.Errorf("oracle: %d admitted, the limit is %d in %s", c.all, l.N, l.Window))
		}
		return
	}
	length, sum := int64(l.Window/time.Second), int64(0)
	for s := second - length + 1; s < second+length && s <= c.newest; s++ {
		if c.remembers(s) {
			sum += *c.at(s)
		}
		if c.remembers(s-length) && s-length > second-length {
			sum -= *c.at(s - length)
		}
		if s >= second && sum > l.N {
			c.blame(fmt.Errorf("oracle: %d admitted in the %s up to second %d, the limit is %d", sum, l.Window, s, l.N))
		}
	}
}

// blame keeps the first fault, with mu held.
func (c *Counter) blame(fault error) {
	if c.fault == nil {
		c.fault = fault
	}
}

// Sub returns what came since an earlier tally.
func (t Tally) Sub(earlier Tally) Tally {
	return Tally{t.Acknowledged - earlier.Acknowledged, t.Unknown - earlier.Unknown}
}
