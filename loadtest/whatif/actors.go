package whatif

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
)

// fate is what becomes of the lines of an actor before any limit is asked.
type fate uint8

const (
	decided     fate = iota
	unlimited        // no rule applies to the features
	refused          // a feature is none that a server would take
	withoutCost      // there is no cost, or none that a hit may have
)

// actors are the sets of features in the log, and the numbers of what they are counted by.
type actors struct {
	all     []actor
	numbers map[string]uint32 // by the identities of counters
	names   []string          // by number
}

type actor struct {
	features events.Features
	cost     int64
	fate     fate
	// whole is the number of all its counters together, and in has that of each rule's counter,
	// where the rule applies.
	whole uint32
	in    []uint32
}

// newActors finds what each of the log's actors is counted by.
func newActors(event *events.Event, all []events.Features, costKind string) *actors {
	a := &actors{numbers: map[string]uint32{}}
	for _, features := range all {
		a.all = append(a.all, a.actor(event, features, costKind))
	}
	return a
}

// number returns the number of the counters together, one or several.
func (a *actors) number(applied []events.Applied) uint32 {
	var id strings.Builder
	for _, one := range applied {
		id.WriteString(strconv.Quote(one.ID))
	}
	n, known := a.numbers[id.String()]
	if !known {
		n = uint32(len(a.names))
		a.numbers[id.String()] = n
		a.names = append(a.names, nameOf(applied))
	}
	return n
}

func (a *actors) actor(event *events.Event, features events.Features, costKind string) actor {
	one := actor{features: features, cost: 1, in: make([]uint32, len(event.Rules))}
	if text, found := features[costKind]; found {
		cost, err := strconv.ParseInt(text, 10, 64)
		if err != nil || cost < 1 || limiter.CheckCost(cost) != nil {
			one.fate = withoutCost
			return one
		}
		one.cost = cost
		one.features = maps.Clone(features)
		delete(one.features, costKind)
	}
	applied, err := event.Apply(nil, one.features)
	if err != nil {
		one.fate = unlimited
		if slices.ContainsFunc(event.Rules, func(r events.Rule) bool { return r.Applies(one.features) }) {
			one.fate = refused
		}
		return one
	}
	for i := range applied {
		one.in[firstOf(event, applied[i].Rule.Per)] = a.number(applied[i : i+1])
	}
	one.whole = a.number(applied)
	return one
}

// firstOf returns the number of the first rule per those kinds: rules per the same share a counter.
func firstOf(event *events.Event, per []string) int {
	return slices.IndexFunc(event.Rules, func(r events.Rule) bool { return slices.Equal(r.Per, per) })
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
