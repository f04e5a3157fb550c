package whatif

import (
	"maps"
	"slices"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
)

// limit is a limit of the rules, and what it did.
type limit struct {
	score
	rule     *events.Rule
	limit    events.Limit
	override bool // of single values
	group    int

	alone, over, listed int64
	deniedAt            []int64 // by the steps of the timeline
}

// newLimits returns the limits of the event by their names, in the order of the rules,
// those of overrides behind their rule's own.
func newLimits(event *events.Event, actors *actors, steps int) []*limit {
	var limits []*limit
	for i := range event.Rules {
		rule := &event.Rules[i]
		add := func(list []events.Limit, override bool) {
			for _, l := range list {
				if slices.ContainsFunc(limits, func(other *limit) bool { return other.limit.Name == l.Name }) {
					continue // overrides of several values
				}
				group := actors.group(rule.Per)
				limits = append(limits, &limit{
					score: newScore(len(actors.groups[group].names)), rule: rule, limit: l,
					override: override, group: group, deniedAt: make([]int64, steps),
				})
			}
		}
		add(rule.Limits, false)
		for _, value := range slices.Sorted(maps.Keys(rule.Overrides)) {
			add(rule.Overrides[value], true)
		}
	}
	return limits
}

// add counts a decision in which the limit took part, at a step of the timeline. The hit
// was denied by so many limits that are enforced.
func (l *limit) add(feature uint32, second int64, step int, d *hierarchy.Decision, state *hierarchy.LimitState, denials int) {
	l.score.add(feature, second, state.Allowed)
	if state.Listing == events.Denied {
		l.listed++
	}
	if !state.Allowed {
		l.deniedAt[step]++
		if !l.rule.Shadow {
			denials--
		}
		if denials == 0 {
			l.alone++
		}
	}
	if d.Allowed && state.Over {
		l.over++
	}
}

func (l *limit) report(top int, group *group) Limit {
	return Limit{
		Name: l.limit.Name, Per: append([]string{}, l.rule.Per...), Rate: events.FormatRate(l.limit), Throttle: l.rule.Throttle.String(),
		Shadow: l.rule.Shadow, Override: l.override, Alone: l.alone, Over: l.over, OnDenyList: l.listed,
		Score: l.score.report(top, group.name), DeniedAt: l.deniedAt,
	}
}
