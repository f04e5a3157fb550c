package plan

import (
	"slices"
	"strings"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
)

// counters are those of one event that are counted by the same kinds, and share all that
// shapes them.
type counters struct {
	event   *events.Event
	kinds   []string // nil: each feature, of an event without limits
	counts  bool     // nothing is decided, only counted
	per     string
	limits  []string // as rates
	windows []time.Duration
	counter events.Counter // one of them, without its feature
	// The levels that are written.
	finest, coarsest hierarchy.Level
	shut             bool // a limit of 0 denies every hit, before it is added
}

// What stands for kinds where there are none to name.
const (
	perWhole = "(all)"
	perEach  = "(each feature)"
)

func perOf(kinds []string) string {
	if len(kinds) == 0 {
		return perWhole
	}
	return strings.Join(kinds, "+")
}

// countersOf returns the counters that an event's rules name, in their order; without
// rules one for each feature.
func countersOf(event *events.Event) []counters {
	if len(event.Rules) == 0 {
		all := counters{event: event, counts: true, per: perEach, counter: events.Counter{Event: event.Name, Retention: event.Remembered()}}
		return []counters{all.withLevels()}
	}
	var all []counters
	for i := range event.Rules {
		rule := &event.Rules[i]
		at := slices.IndexFunc(all, func(c counters) bool { return slices.Equal(c.kinds, rule.Per) })
		if at < 0 {
			at = len(all)
			fresh := counters{event: event, kinds: slices.Clone(rule.Per), per: perOf(rule.Per),
				counter: events.Counter{Event: event.Name, Retention: event.Remembered(), Precision: rule.Precision}}
			all = append(all, fresh.withLevels())
		}
		c := &all[at]
		for _, limit := range rule.Limits {
			c.limits = append(c.limits, events.FormatRate(limit))
			c.windows = append(c.windows, limit.Window)
		}
	}
	if shut(event) {
		for i := range all {
			all[i].shut = true
		}
	}
	return all
}

// shut reports whether every hit on the event is denied before it is added to anything.
func shut(event *events.Event) bool {
	denies := false
	for _, rule := range event.Rules {
		if rule.Count == events.CountAll {
			return false
		}
		if rule.Shadow || rule.Throttle.Kind == events.Elastic {
			continue
		}
		for _, limit := range rule.Limits {
			denies = denies || rule.Throttle.Ceiling(limit.N) == 0
		}
	}
	return denies
}

// whole reports whether there is one counter for the whole event.
func (c counters) whole() bool { return !c.counts && len(c.kinds) == 0 }

// withLevels finds out the levels: once, for what they cost at the most is searched for in
// every second of a day.
func (c counters) withLevels() counters {
	cost := hierarchy.FootprintOf(c.counter, 0)
	c.finest, c.coarsest = cost.Finest, cost.Coarsest
	return c
}

// life returns for how long a bucket of the level is there whose first second had an event.
func (c counters) life(l hierarchy.Level, grace time.Duration) time.Duration {
	return time.Duration(hierarchy.BucketAt(l, 0).Expires(c.counter.Retention, grace)) * time.Second
}
