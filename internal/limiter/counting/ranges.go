package counting

import (
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// CheckBy returns a *[engine.RangeError] for what Increment does not add.
func CheckBy(by int64) error {
	if by < 1 || by > engine.MaxBy {
		return engine.OutOfRange(engine.ArgBy, "it is 1 to %d", engine.MaxBy)
	}
	return nil
}

// seconds are Unix seconds, both included.
type seconds struct{ first, last int64 }

// kept returns the seconds whose events the counter takes at the moment now.
func (c *Counters) kept(counter events.Counter, now time.Time) seconds {
	second := now.Unix()
	return seconds{second - engine.CeilSeconds(counter.Remembered()), second + int64(c.grace/time.Second)}
}

func (c *Counters) checkIncrement(by int64, at, now time.Time, counters []events.Counter) error {
	if err := CheckBy(by); err != nil {
		return err
	}
	if len(counters) == 0 {
		return engine.OutOfRange(engine.ArgCounters, "there is none to add to")
	}
	second := at.Unix()
	for _, counter := range counters {
		if kept := c.kept(counter, now); second < kept.first || second > kept.last {
			return engine.OutOfRange(engine.ArgAt, "it lies between %s back and %s ahead of now",
				events.FormatDuration(counter.Remembered()), c.grace)
		}
	}
	return nil
}

// checkEvents faults an argument of a counter of token buckets alone: they count events, and remember none.
func checkEvents(counter events.Counter, argument engine.Argument) error {
	buckets := 0
	for rule, limit := range counter.Limits() {
		switch {
		case limit.Burst > 0:
			buckets++
		case !rule.Leases():
			return nil
		}
	}
	if buckets == 0 {
		return nil
	}
	return engine.OutOfRange(argument, "the counter has token buckets alone, which remember no events: give it a limit with a window, which may be in shadow")
}

func (c *Counters) checkCount(counter events.Counter, length time.Duration, at, now time.Time) error {
	if err := checkEvents(counter, engine.ArgWindow); err != nil {
		return err
	}
	remembered := func() string { return events.FormatDuration(counter.Remembered()) }
	if length < time.Second || length%time.Second != 0 {
		return engine.OutOfRange(engine.ArgWindow, "it is in whole seconds, at least 1s")
	}
	if length > counter.Remembered() {
		return engine.OutOfRange(engine.ArgWindow, "the counter is remembered for %s, no longer window can be summed", remembered())
	}
	kept, last := c.kept(counter, now), at.Unix()
	first := last - int64(length/time.Second) + 1
	switch {
	case last > kept.last:
		return engine.OutOfRange(engine.ArgAt, "the window ends more than %s ahead of now", c.grace)
	case last < kept.first:
		return engine.OutOfRange(engine.ArgAt, "the window ends longer ago than the %s for which the counter is remembered", remembered())
	// A caller's clock may be behind by the grace: its last 24 hours are no fault.
	case first < kept.first-engine.CeilSeconds(c.grace):
		return engine.OutOfRange(engine.ArgWindow, "the window begins longer ago than the %s for which the counter is remembered", remembered())
	}
	return nil
}

func (c *Counters) checkHistory(counter events.Counter, level engine.Level, from, to, now time.Time) error {
	if err := checkEvents(counter, engine.ArgLevel); err != nil {
		return err
	}
	kept, first, last := c.kept(counter, now), from.Unix(), to.Unix()
	switch {
	case first < kept.first-engine.CeilSeconds(c.grace):
		return engine.OutOfRange(engine.ArgFrom, "it is longer ago than the %s for which the counter is remembered",
			events.FormatDuration(counter.Remembered()))
	case last > kept.last:
		return engine.OutOfRange(engine.ArgTo, "it is more than %s ahead of now", c.grace)
	case first > last:
		return engine.OutOfRange(engine.ArgFrom, "it is later than to")
	}
	if n := level.Of(last) - level.Of(first) + 1; n > engine.MaxHistory {
		return engine.OutOfRange(engine.ArgFrom, "there are %d buckets from here, at most %d are returned: choose a coarser level or a later moment",
			n, engine.MaxHistory)
	}
	return nil
}
