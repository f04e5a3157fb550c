package whatif

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/limiter"
)

// fate is what becomes of the lines of an actor before any limit is asked.
type fate uint8

const (
	decided     fate = iota
	unlimited        // no rule applies to the features
	refused          // a feature is none that a server would take
	withoutCost      // there is no cost, or none that a hit may have
)

// actors are the sets of features in the log, and what they are counted by.
type actors struct {
	all    []actor
	groups []*group // of the rules, by their kinds
	whole  group    // of all rules together
}

type actor struct {
	features events.Features
	cost     int64
	fate     fate
	// whole and in are the numbers of its features: that of all its counters together, and
	// those in each of the groups, where it is in that.
	whole uint32
	in    []uint32
}

// group is what rules with the same kinds count by.
type group struct {
	per     []string
	numbers map[string]uint32
	names   []string
}

// number returns the number of the feature of that identity.
func (g *group) number(id, name string) uint32 {
	n, known := g.numbers[id]
	if !known {
		n = uint32(len(g.names))
		g.numbers[id] = n
		g.names = append(g.names, name)
	}
	return n
}

// newActors finds what each of the log's actors is counted by.
func newActors(event *events.Event, all []events.Features, costKind string) *actors {
	a := &actors{all: make([]actor, len(all)), whole: group{numbers: map[string]uint32{}}}
	for i := range event.Rules {
		if per := event.Rules[i].Per; a.group(per) < 0 {
			a.groups = append(a.groups, &group{per: per, numbers: map[string]uint32{}})
		}
	}
	for i, features := range all {
		a.all[i] = a.actor(event, features, costKind)
	}
	return a
}

// group returns the index of the group of those kinds, or -1.
func (a *actors) group(per []string) int {
	return slices.IndexFunc(a.groups, func(g *group) bool { return slices.Equal(g.per, per) })
}

func (a *actors) actor(event *events.Event, features events.Features, costKind string) actor {
	one := actor{features: features, cost: 1}
	if text, found := features[costKind]; found {
		cost, err := strconv.ParseInt(text, 10, 64)
		if err != nil || limiter.CheckCost(cost) != nil {
			one.fate = withoutCost
			return one
		}
		one.cost = cost
		one.features = maps.Clone(features)
		delete(one.features, costKind)
	}
	applied, err := event.Apply(nil, one.features)
	switch {
	case err != nil && !slices.ContainsFunc(event.Rules, func(r events.Rule) bool { return r.Applies(one.features) }):
		one.fate = unlimited
		return one
	case err != nil:
		one.fate = refused
		return one
	}
	one.in = make([]uint32, len(a.groups))
	var ids []string
	for i := range applied {
		group := a.group(applied[i].Rule.Per)
		one.in[group] = a.groups[group].number(applied[i].ID, nameOf(applied[i:i+1]))
		ids = append(ids, strconv.Quote(applied[i].ID))
	}
	one.whole = a.whole.number(strings.Join(ids, " "), nameOf(applied))
	return one
}

// nameOf names the features of the counters together, as decisions spell a feature: each
// kind and value once, in the order of kinds. That of a whole event is empty.
func nameOf(applied []events.Applied) string {
	var all []string
	for _, a := range applied {
		for kind, value := range a.Counter.Feature.All() {
			all = append(all, kind+":"+value)
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), "+")
}
