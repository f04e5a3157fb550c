package replay

import (
	"fmt"
	"maps"
	"slices"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/exactlog"
)

// roster knows in which counters the log's actors are counted. What is counted of the
// event as a whole is left out: others may count there, too.
type roster struct {
	event    events.Event // as the server counts it
	counters map[events.Feature]*counter
	first    []*asker            // of each counter one
	askers   []*asker            // all of them
	actors   map[uint32][]*asker // by their number in the log, one for each of its counters

	known map[string]*asker
}

// counter is a counter as the server names it, with the exact log of it in seconds.
type counter struct {
	feature string
	step    int64 // of its precision, in seconds
	slides  bool  // it is a log: windows below a minute that end now slide by milliseconds
	log     exactlog.Log
}

// asker is how a counter is asked for. Several may share one: IPv6 addresses of one
// network do.
type asker struct {
	features events.Features // as the log has them
	*counter
}

func newRoster(event events.Event) *roster {
	return &roster{event: event, counters: map[events.Feature]*counter{}, actors: map[uint32][]*asker{}, known: map[string]*asker{}}
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
	r.actors[number] = nil
	for _, c := range counters {
		if len(c.Feature.Kinds()) > 0 {
			r.actors[number] = append(r.actors[number], r.asker(c, features))
		}
	}
	return nil
}

func (r *roster) asker(of events.Counter, features events.Features) *asker {
	kinds := of.Feature.Kinds()
	key := ""
	for _, kind := range kinds {
		key += fmt.Sprintf("%s:%d:%s", kind, len(features[kind]), features[kind])
	}
	if known := r.known[key]; known != nil {
		return known
	}
	own := maps.Clone(features)
	maps.DeleteFunc(own, func(kind, _ string) bool { return !slices.Contains(kinds, kind) })
	a := &asker{own, r.counters[of.Feature]}
	if a.counter == nil {
		a.counter = &counter{feature: of.Feature.String(), step: seconds(of.Precision.Length()), slides: r.event.HasLog(kinds)}
		r.counters[of.Feature] = a.counter
		r.first = append(r.first, a)
	}
	r.known[key] = a
	r.askers = append(r.askers, a)
	return a
}

// eventOf returns how the server counts the event.
func eventOf(from wire.Event) (events.Event, error) {
	retention, err := events.ParseDuration(from.Retention)
	if err != nil {
		return events.Event{}, fmt.Errorf("%w: the retention of %s: %w", ErrContract, from.Name, err)
	}
	event := events.Event{Name: from.Name, Retention: retention}
	for _, rule := range from.Rules {
		precisions := []events.Precision{events.Second, events.Minute, events.Hour}
		i := slices.IndexFunc(precisions, func(p events.Precision) bool { return p.String() == rule.Precision })
		if i < 0 {
			return events.Event{}, fmt.Errorf("%w: an unknown precision", ErrContract)
		}
		own := events.Rule{Per: slices.Sorted(slices.Values(rule.Per)), Precision: precisions[i], IPv6Prefix: rule.IPv6Prefix}
		for _, limit := range rule.Limits {
			own.Limits = append(own.Limits, events.Limit{Algorithm: limit.Algorithm})
		}
		event.Rules = append(event.Rules, own)
	}
	return event, nil
}
