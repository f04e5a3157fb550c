package hierarchy

import (
	"slices"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/store"
)

// counterSet has the counters of a batch, each once, and their limits.
type counterSet struct {
	claims arena[claim]
	byName map[claimName]*claim
	checks arena[check]
}

// claimName tells the claims of a flush apart: by the counter, and how it is counted. Hits
// of two generations of rules may differ in that. Then each has a claim of its own, which
// counts the other in full.
type claimName struct {
	counter  events.Counter
	countAll bool
}

func nameOf(a *events.Applied) claimName {
	return claimName{a.Counter, a.Rule.Count == events.CountAll}
}

// mappedClaims is how many claims a flush has before it finds them by a map.
const mappedClaims = 8

// of returns the counter, and whether it is new in the set.
func (s *counterSet) of(a *events.Applied) (c *claim, isNew bool) {
	name, claims := nameOf(a), s.claims.handedOut()
	if len(claims) <= mappedClaims {
		for _, c := range claims {
			if c.name == name {
				return c, false
			}
		}
	} else if c := s.byName[name]; c != nil {
		return c, false
	}
	c = s.claims.next()
	c.begin(a.ID)
	c.name = name
	c.finest, _ = levels(a.Counter)
	if len(claims) == mappedClaims {
		if s.byName == nil {
			s.byName = map[claimName]*claim{}
		}
		for _, c := range claims {
			s.byName[c.name] = c
		}
	}
	if len(claims) >= mappedClaims {
		s.byName[name] = c
	}
	return c, true
}

// limitsOf returns the rule's limits on the counter.
func (s *counterSet) limitsOf(p *plan, c *claim, a *events.Applied) []*check {
	limits := a.Rule.LimitsOf(a.Counter.Feature)
	first := slices.IndexFunc(c.checks, func(check *check) bool { return check.rule == a.Rule })
	if first < 0 {
		first = len(c.checks)
		for _, limit := range limits {
			k := s.checks.next()
			*k = check{
				rule: a.Rule, limit: limit, ceiling: a.Rule.Throttle.Ceiling(limit.N),
				span: p.span(limit.Window, c.finest),
			}
			c.checks = append(c.checks, k)
		}
	}
	return c.checks[first : first+len(limits)]
}

// touch ends the denials that are remembered of the counters that the flush has added to,
// but for those that it is about to remember: they know of it.
func (s *counterSet) touch(cache *BucketCache) {
	if cache == nil {
		return // in tests
	}
	for _, c := range s.claims.handedOut() {
		if len(c.places) == 0 {
			continue
		}
		if touched := cache.touchesOf(c.id).Add(1); touched == c.touched+1 {
			c.touched = touched
		}
	}
}

// hasFailed reports whether one of several counters could not be asked.
func (s *counterSet) hasFailed() bool {
	claims := s.claims.handedOut()
	return len(claims) > 1 && slices.ContainsFunc(claims, func(c *claim) bool { return c.err != nil })
}

// free gives back what the set holds.
func (s *counterSet) free() {
	for _, c := range s.claims.handedOut() {
		clear(c.checks)
		clear(c.places)
		c.leave()
		*c = claim{reader: c.reader, checks: c.checks[:0], tiles: c.tiles, places: c.places[:0], after: store.Op{Writes: c.after.Writes[:0]}}
	}
	for _, check := range s.checks.handedOut() {
		check.rule, check.limit = nil, events.Limit{}
	}
	s.claims.takeBack()
	s.checks.takeBack()
	clear(s.byName)
}
