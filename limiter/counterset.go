package limiter

import (
	"slices"

	"github.com/counterd/counterd/engine"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/store"
)

// counterSet has the counters of a batch, each once, and their limits.
type counterSet struct {
	all     arena[counterState]
	byName  map[counterKey]*counterState
	windows arena[limitWindow]
}

// counterKey tells the counters of a batch apart: by the counter, the engine that keeps it, and
// how it is counted. Hits of two generations of rules may differ in that. Then each has a
// counterState of its own, which counts the other in full.
type counterKey struct {
	counter  events.Counter
	engine   int // which of the limiter's
	countAll bool
}

// mappedCounters is how many counters a batch has before it finds them by a map.
const mappedCounters = 8

// of returns the counter, and whether it is new in the set.
func (s *counterSet) of(a *events.Applied, by int) (c *counterState, isNew bool) {
	name, known := counterKey{a.Counter, by, a.Rule.Count == events.CountAll}, s.all.handedOut()
	if len(known) <= mappedCounters {
		for _, c := range known {
			if c.name == name {
				return c, false
			}
		}
	} else if c := s.byName[name]; c != nil {
		return c, false
	}
	c = s.all.next()
	c.id, c.name = a.ID, name
	if len(known) == mappedCounters {
		if s.byName == nil {
			s.byName = map[counterKey]*counterState{}
		}
		for _, c := range known {
			s.byName[c.name] = c
		}
	}
	if len(known) >= mappedCounters {
		s.byName[name] = c
	}
	return c, true
}

// windowsOf returns the windows of the rule's limits on the counter.
func (s *counterSet) windowsOf(c *counterState, rule *events.Rule, limits []events.Limit) []*limitWindow {
	first := slices.IndexFunc(c.windows, func(check *limitWindow) bool { return check.rule == rule })
	if first < 0 {
		first = len(c.windows)
		for _, limit := range limits {
			k := s.windows.next()
			ceiling := rule.Throttle.Ceiling(limit.N)
			*k = limitWindow{rule: rule, limit: limit, ceiling: ceiling, index: len(c.windows)}
			c.windows = append(c.windows, k)
		}
	}
	return c.windows[first : first+len(limits)]
}

// touch ends the cached denials of the counters that the batch has added to. The denials that
// the batch is about to cache know of its adds.
func (s *counterSet) touch(changes *engine.Changes) {
	for _, c := range s.all.handedOut() {
		if len(c.places) == 0 {
			continue
		}
		if touched := changes.Of(c.id).Add(1); touched == c.touched+1 {
			c.touched = touched
		}
	}
}

// hasFailed reports whether one of several counters could not be asked.
func (s *counterSet) hasFailed() bool {
	known := s.all.handedOut()
	return len(known) > 1 && slices.ContainsFunc(known, func(c *counterState) bool { return c.err != nil })
}

// free gives back what the set holds.
func (s *counterSet) free() {
	for _, c := range s.all.handedOut() {
		clear(c.windows)
		clear(c.places)
		if c.session != nil {
			c.session.End()
		}
		*c = counterState{windows: c.windows[:0], places: c.places[:0], after: store.Op{Writes: c.after.Writes[:0]}}
	}
	for _, check := range s.windows.handedOut() {
		check.rule, check.limit = nil, events.Limit{}
	}
	s.all.reset()
	s.windows.reset()
	clear(s.byName)
}

// arena hands out values that stay where they are, and takes them all back at once
// to hand them out again.
type arena[T any] struct {
	all  []*T
	used int
}

// next returns a value as it was left.
func (a *arena[T]) next() *T {
	if a.used == len(a.all) {
		a.all = append(a.all, new(T))
	}
	a.used++
	return a.all[a.used-1]
}

func (a *arena[T]) handedOut() []*T { return a.all[:a.used] }

func (a *arena[T]) reset() { a.used = 0 }
