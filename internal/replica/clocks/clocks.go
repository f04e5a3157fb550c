// Package clocks compares the clocks of the processes that share a Memcached server, through
// notes that they leave there. No server tells the time.
//
// Each look of a process at the server takes the next number of a count that all processes share:
// its tick. So the server orders the looks. The process reads its clock before it asks for the tick
// and after it has it, leaves both times beside the tick, and reads the notes of others. Of two looks
// the later one ended after the earlier one had begun: so the clock of the later process is ahead by
// at most its second time less the first one of the other process. Looks in both orders give both
// bounds. What is late, a goroutine or a server, widens them, and makes none wrong.
package clocks

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// remembered is for how long looks are compared with one another. Clocks that are not set
	// drift little meanwhile.
	remembered = time.Minute
	// present is for how long a process counts as one that runs, since its last note was new.
	present = 15 * time.Second
	// settling is for how long a process that has begun says nothing: it may not have seen all others.
	settling = 10 * time.Second
	// lone is how many looks of a process, with none of another one between them, show that it is alone.
	lone = 3
	// maxStep is by how much the clock may move against the monotonic one and count as not set.
	maxStep = 50 * time.Millisecond
)

// Clocks compares the clock of this process with those of others. It is safe for concurrent use.
type Clocks struct {
	now     func() time.Time
	skew    time.Duration
	changed func(ahead time.Duration, wrong bool)
	process uint64 // tells it from others

	mu    sync.Mutex
	began time.Time       // the first look
	own   []look          // in their order, since the clock was last set
	notes map[uint64]seen // of others, by their ticks
	last  uint64          // tick of this process
	alone int             // its looks since another process's
	ahead time.Duration
	known bool

	wrong atomic.Bool
}

// look is one look of this process at the server.
type look struct {
	note
	began time.Time // on the monotonic clock
}

// seen is a note of another process.
type seen struct {
	note
	first time.Time // when it was, on the monotonic clock
}

// New returns Clocks of a process with that clock. Changed is called when the clock is found to be
// more than the skew from those of the others, and when that is over, from any goroutine.
func New(now func() time.Time, skew time.Duration, changed func(ahead time.Duration, wrong bool)) *Clocks {
	return &Clocks{now: now, skew: skew, changed: changed, process: rand.Uint64(), notes: map[uint64]seen{}}
}

// Ahead returns by how much, at the least, the clock is ahead of those of the other processes, or
// behind them, if negative; 0: as far as is known it agrees with them. Known is false if no other
// process was seen.
func (c *Clocks) Ahead() (ahead time.Duration, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead, c.known
}

// Wrong reports whether the clock is more than the skew from those of the other processes.
func (c *Clocks) Wrong() bool { return c.wrong.Load() }

// took notes a look of this process, and returns the note to leave. There is none if the clock was
// set meanwhile. First is set if the look began the count; alone, if no other process looks.
func (c *Clocks) took(tick uint64, first bool, before, after, began time.Time) (own note, leave, alone bool) {
	l := look{note{process: c.process, since: tick, tick: tick, before: before.UnixNano(), after: after.UnixNano()}, began}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.began.IsZero() {
		c.began = now
	}
	switch {
	case first:
		c.alone = lone
	case tick == c.last+1:
		c.alone++
	default:
		c.alone = 0
	}
	c.last = tick
	c.own = slices.DeleteFunc(c.own, func(l look) bool { return now.Sub(l.began) > remembered || l.isSet(after, now) })
	if l.isSet(after, now) {
		return note{}, false, c.alone >= lone
	}
	c.own = append(c.own, l)
	c.own[len(c.own)-1].since = c.own[0].tick
	return c.own[len(c.own)-1].note, true, c.alone >= lone
}

// isSet reports whether the clock was set between the look and now, when it shows that wall time.
func (l *look) isSet(wall, now time.Time) bool {
	return (wall.Sub(time.Unix(0, l.before)) - now.Sub(l.began)).Abs() > maxStep
}

// read takes in what is noted on the server, and compares.
func (c *Clocks) read(notes []note) {
	c.mu.Lock()
	now := time.Now()
	for tick, n := range c.notes {
		if now.Sub(n.first) > remembered {
			delete(c.notes, tick)
		}
	}
	for _, n := range notes {
		if _, old := c.notes[n.tick]; !old && n.process != c.process {
			c.notes[n.tick] = seen{n, now}
		}
	}
	if now.Sub(c.began) >= settling {
		c.compare(now)
	}
	ahead, wrong := c.ahead, c.ahead.Abs() > c.skew
	news := c.wrong.Swap(wrong) != wrong
	c.mu.Unlock()
	if news {
		c.changed(ahead, wrong)
	}
}

// bounds are by how much the clock is ahead of another process's: at least, and at most.
type bounds struct{ low, high int64 }

// compare finds by how much the clock is ahead: of this process and the others, of as many as are
// ahead of the rest as behind it. That is, it is the median, which fewer than half of the processes
// cannot move. Of an even number the two in the middle may disagree, and either may be right.
func (c *Clocks) compare(now time.Time) {
	others := c.others(now)
	lows, highs := []int64{0}, []int64{0}
	for _, b := range others {
		lows, highs = append(lows, b.low), append(highs, b.high)
	}
	slices.Sort(lows)
	slices.Sort(highs)
	c.known = len(others) > 0
	// The bounds are in the order in which what they bound is.
	c.ahead = time.Duration(max(lows[len(lows)/2], 0) + min(highs[(len(highs)-1)/2], 0))
}

// others returns the bounds for each other process that runs.
func (c *Clocks) others(now time.Time) map[uint64]bounds {
	newest, all := map[uint64]note{}, map[uint64]bounds{}
	for _, n := range c.notes {
		if now.Sub(n.first) <= present {
			all[n.process] = bounds{math.MinInt64, math.MaxInt64}
		}
		if last, found := newest[n.process]; !found || last.isBefore(n.note) {
			newest[n.process] = n.note
		}
	}
	for _, n := range c.notes {
		b, runs := all[n.process]
		since := note{tick: newest[n.process].since}
		if !runs || n.isBefore(since) {
			continue
		}
		for _, own := range c.own {
			switch {
			case own.isBefore(n.note):
				b.low = max(b.low, own.before-n.after)
			case n.isBefore(own.note):
				b.high = min(b.high, own.after-n.before)
			}
		}
		all[n.process] = b
	}
	return all
}

// note is what a process notes of a look.
type note struct {
	process uint64
	since   uint64 // the tick of the first look since the process's clock was set
	tick    uint64
	before  int64 // what its clock showed before it had the tick, and after; Unix nanoseconds
	after   int64
}

// isBefore reports whether the look was before the other one, as far as their ticks tell.
func (n note) isBefore(other note) bool {
	return n.tick < other.tick && other.tick-n.tick < beginning
}

// String returns what parse reads.
func (n note) String() string {
	return fmt.Sprintf("%d %d %d %d %d", n.process, n.since, n.tick, n.before, n.after)
}

// latest is the last time that a note may have, in Unix nanoseconds: the difference of two times has 64 bits.
const latest = math.MaxInt64 / 2

// parse reads a note. It is not ok if no process writes such a text.
func parse(text string) (n note, ok bool) {
	_, err := fmt.Sscanf(text, "%d %d %d %d %d", &n.process, &n.since, &n.tick, &n.before, &n.after)
	known := n.since == n.tick || (note{tick: n.since}).isBefore(n)
	return n, err == nil && n.String() == text && known && -latest < n.before && n.before <= n.after && n.after < latest
}
