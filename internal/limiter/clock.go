package limiter

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// errLate is why a hit is not admitted whose decision took too long.
var errLate = errors.New("limiter: the decision took longer than half the grace")

// A clock assigns hits to seconds. The clocks of two processes differ by at most a quarter of the grace, and a hit is
// admitted within half of it. So no admitted hit is more than the grace ahead of another one that was added before it,
// which is how far each hit looks ahead.
type clock struct {
	now       func() time.Time
	wallClock bool // now is time.Now
	grace     time.Duration
	latest    atomic.Int64 // the latest second so far
}

func (c *clock) init(now func() time.Time, grace time.Duration) {
	c.now, c.grace = now, grace
	if now == nil {
		c.now, c.wallClock = time.Now, true
	}
}

// realTime returns the real time, if now is the clock's. Timeouts are real, whatever the clock.
func (c *clock) realTime(now time.Time) time.Time {
	if c.wallClock {
		return now
	}
	return time.Now()
}

// moment returns the moment of a new batch. Its second does not go back, unless the clock was set back by more than
// hits may be ahead.
func (c *clock) moment() Moment {
	now := c.now()
	second, latest := now.Unix(), c.latest.Load()
	for second > latest {
		if c.latest.CompareAndSwap(latest, second) {
			return Moment{Time: now, Second: second, Latest: second}
		}
		latest = c.latest.Load()
	}
	if time.Unix(latest, 0).Sub(now.Round(0)) > c.grace/4 { // further than another clock may be
		return Moment{Time: now, Second: second, Latest: latest}
	}
	return Moment{Time: now, Second: latest, Latest: latest}
}

// isLate reports whether it is too late to admit hits of the moment, by the monotonic clock or by the wall clock, or
// too early by the wall clock.
func (c *clock) isLate(at Moment) bool {
	now := c.now()
	began := at.Time.Round(0)
	if second := time.Unix(at.Second, 0); second.After(began) {
		began = second
	}
	elapsed := now.Round(0).Sub(began)
	return now.Sub(at.Time) > c.grace/2 || elapsed > c.grace/2 || elapsed < -c.grace/4
}

// MayHave reports whether a hit can have reserved r, by its times: for no longer than a queue or a reservation lasts.
func (l *Limiter) MayHave(r *engine.Reserved) bool {
	allowed, lasts := 2*l.grace.Milliseconds(), r.Ends-r.Time
	return lasts >= -allowed && lasts <= events.MaxWindow.Milliseconds()+allowed
}

// Ahead returns by how much the reservation is stamped later than clocks allow that differ by at most the grace, also
// after one was set back. If zero, it is not. A log that a clock has carried ahead stamps hits so.
func (l *Limiter) Ahead(r *engine.Reserved) time.Duration {
	latest := max(l.clock.now().UnixMilli(), l.clock.latest.Load()*1000) + 2*l.grace.Milliseconds()
	return time.Duration(min(max(r.Time-latest, 0), events.MaxWindow.Milliseconds())) * time.Millisecond
}
