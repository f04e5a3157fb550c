package replay

import (
	"fmt"
	"maps"
	"slices"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
)

// roster knows in which counters the log's actors are counted. What is counted of the
// event as a whole is left out: others may count there, too.
type roster struct {
	event    events.Event // as the server counts it
	counters []counter
	askers   []asker
	actors   map[uint32]actor // by their number in the log

	knownCounters map[events.Feature]uint32
	knownAskers   map[string]uint32
}

// counter is a counter as the server names it.
type counter struct {
	feature string
	step    int64 // of its precision, in seconds
}

// asker is how a counter is asked for. Several may share one: IPv6 addresses of one
// network do.
type asker struct {
	features events.Features // as the log has them
	counter  uint32
}

// actor has the askers and the counters of one of the log's actors.
type actor struct{ askers, counters []uint32 }

func newRoster(event events.Event) *roster {
	return &roster{
		event: event, actors: map[uint32]actor{},
		knownCounters: map[events.Feature]uint32{}, knownAskers: map[string]uint32{},
	}
}

// add adds an actor, once.
func (r *roster) add(number uint32, features events.Features) error {
	if _, known := r.actors[number]; known {
		return nil
	}
	counters, err := r.event.Counters(features)
	if err != nil {
		return err
	}
	var who actor
	for _, c := range counters {
		kinds := c.Feature.Kinds()
		if len(kinds) == 0 {
			continue
		}
		index := r.counter(c)
		who.counters = append(who.counters, index)
		who.askers = append(who.askers, r.asker(kinds, features, index))
	}
	r.actors[number] = who
	return nil
}

func (r *roster) counter(c events.Counter) uint32 {
	index, known := r.knownCounters[c.Feature]
	if !known {
		index = uint32(len(r.counters))
		r.knownCounters[c.Feature] = index
		r.counters = append(r.counters, counter{c.Feature.String(), seconds(c.Precision.Length())})
	}
	return index
}

func (r *roster) asker(kinds []string, features events.Features, counter uint32) uint32 {
	key := ""
	for _, kind := range kinds {
		key += fmt.Sprintf("%s:%d:%s", kind, len(features[kind]), features[kind])
	}
	index, known := r.knownAskers[key]
	if !known {
		own := maps.Clone(features)
		maps.DeleteFunc(own, func(kind, _ string) bool { return !slices.Contains(kinds, kind) })
		index = uint32(len(r.askers))
		r.knownAskers[key] = index
		r.askers = append(r.askers, asker{own, counter})
	}
	return index
}

// onePerCounter returns an asker of each counter.
func (r *roster) onePerCounter() []asker {
	var askers []asker
	seen := make([]bool, len(r.counters))
	for _, a := range r.askers {
		if !seen[a.counter] {
			seen[a.counter] = true
			askers = append(askers, a)
		}
	}
	return askers
}

// eventOf returns how the server counts the event.
func eventOf(from wire.Event) (events.Event, error) {
	retention, err := events.ParseDuration(from.Retention)
	if err != nil {
		return events.Event{}, fmt.Errorf("%w: the retention of %s: %w", ErrContract, from.Name, err)
	}
	event := events.Event{Name: from.Name, Retention: retention}
	for _, rule := range from.Rules {
		precision, err := precisionOf(rule.Precision)
		if err != nil {
			return events.Event{}, err
		}
		event.Rules = append(event.Rules, events.Rule{
			Per: slices.Sorted(slices.Values(rule.Per)), Precision: precision, IPv6Prefix: rule.IPv6Prefix,
		})
	}
	return event, nil
}

func precisionOf(name string) (events.Precision, error) {
	for _, precision := range []events.Precision{events.Second, events.Minute, events.Hour} {
		if name == precision.String() {
			return precision, nil
		}
	}
	return 0, fmt.Errorf("%w: an unknown precision", ErrContract)
}
