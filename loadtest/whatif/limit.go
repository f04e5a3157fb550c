package whatif

import (
	"fmt"
	"maps"
	"slices"

	"github.com/counterd/counterd/events"
)

// limit is a limit of the rules, and what it did.
type limit struct {
	score
	found Limit // but its Score
	rule  int   // the first one with its kinds
}

// newLimits returns the limits of the event by their names, in the order of the rules,
// those of overrides behind their rule's own.
func newLimits(event *events.Event, actors *actors) []*limit {
	var limits []*limit
	for i := range event.Rules {
		rule := &event.Rules[i]
		list := slices.Clone(rule.Limits)
		for _, value := range slices.Sorted(maps.Keys(rule.Overrides)) {
			list = append(list, rule.Overrides[value]...)
		}
		for _, l := range list {
			if slices.ContainsFunc(limits, func(other *limit) bool { return other.found.Name == l.Name }) {
				continue // overrides of several values
			}
			limits = append(limits, &limit{newScore(len(actors.names)), Limit{
				Name: l.Name, Per: append([]string{}, rule.Per...), Rate: rateOf(l), Shadow: rule.Shadow,
			}, firstOf(event, rule.Per)})
		}
	}
	return limits
}

// rateOf returns what the rules say that the limit admits.
func rateOf(l events.Limit) string {
	switch l.Algorithm {
	case events.TokenBucket:
		return fmt.Sprintf("%s, burst %d", events.FormatRate(l), l.Burst)
	case events.LeakyBucket:
		return fmt.Sprintf("%s, queue %d", events.FormatRate(l), l.Burst-1)
	case events.Concurrency:
		return fmt.Sprintf("%d leases of %s", l.N, events.FormatDuration(l.Window))
	}
	return events.FormatRate(l)
}

// add counts a decision in which the limit took part. The hit was denied by so many limits that
// are enforced.
func (l *limit) add(feature uint32, second int64, d *events.Decision, state *events.LimitState, denials int) {
	l.score.add(feature, second, state.Allowed)
	if !state.Allowed {
		if !l.found.Shadow {
			denials--
		}
		if denials == 0 {
			l.found.Alone++
		}
	}
	if d.Allowed && state.Over {
		l.found.Over++
	}
}
