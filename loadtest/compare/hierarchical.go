package compare

import (
	"context"
	"errors"
	"fmt"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/memcache"
)

// hierarchical is counterd's engine on its embedded store, at the traffic's own times.
type hierarchical struct {
	event   *events.Event
	kind    string
	limiter *hierarchy.Limiter
	store   *observed
	clock   clock
	ids     map[string]hitter
}

// hitter is a feature as the engine knows it.
type hitter struct {
	features events.Features
	id       string // of its counter
}

// embeddedBytes is more than any traffic fills: that nothing was dropped is seen to.
const embeddedBytes = 1 << 40

func newHierarchical(l events.Limit, kind string, precision events.Precision) (*hierarchical, error) {
	h := &hierarchical{event: eventOf(l, kind, precision), kind: kind, ids: map[string]hitter{}}
	return h, h.on(memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: h.clock.now, MaxBytes: embeddedBytes}))
}

// on has it decide on a store.
func (h *hierarchical) on(store hierarchy.Starter) (err error) {
	h.store = &observed{Starter: store, counters: map[string]*buckets{}}
	h.limiter, err = hierarchy.NewLimiter(hierarchy.LimiterConfig{Store: h.store, Clock: h.clock.now})
	return err
}

// eventOf returns an event with that one limit for each feature of the kind.
func eventOf(l events.Limit, kind string, precision events.Precision) *events.Event {
	l.Name = "compared"
	return &events.Event{Name: "compared", Rules: []events.Rule{{
		Per: []string{kind}, Limits: []events.Limit{l}, Precision: precision, OnError: events.OnErrorDeny,
	}}}
}

func (h *hierarchical) decide(ctx context.Context, feature string, now, cost int64) (bool, error) {
	who, known := h.ids[feature]
	if !known {
		who.features = events.Features{h.kind: feature}
		applied, err := h.event.Apply(nil, who.features)
		if err != nil {
			return false, err
		}
		who.id = applied[0].ID
		h.ids[feature] = who
	}
	h.clock.set(now)
	d, err := h.limiter.Hit(ctx, hierarchy.Hit{Event: h.event, Features: who.features, Cost: cost})
	switch {
	case err != nil:
		return false, err
	case d.Unavailable || d.Limits[0].Failed:
		return false, errors.New("compare: the engine decided without its store")
	case d.Limits[0].Incomplete:
		return false, errors.New("compare: the engine's store has lost a counter")
	case d.At.Unix() != now/second:
		return false, fmt.Errorf("compare: the engine stamped a hit of second %d with %d", now/second, d.At.Unix())
	}
	return d.Allowed, nil
}

// items are the buckets. Their values are a few digits.
func (h *hierarchical) items(feature string) (n, value int) {
	of := h.store.counters[h.ids[feature].id]
	if of == nil {
		return 0, 0
	}
	return of.alive(h.clock.now().Unix()), 1
}

func (h *hierarchical) asked() asked { return h.store.asked }

// observed counts what the engine asks of its store, and knows which buckets there are. It
// has the methods of a hierarchy.Starter and no others. The embedded store does not wait,
// so a deadline passes only where this process was held up: there is none, and decisions
// depend on the traffic alone.
type observed struct {
	hierarchy.Starter
	asked    asked
	counters map[string]*buckets
}

func (o *observed) Trip(ctx context.Context, counter string, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) (int, error) {
	o.asked.trips++
	o.asked.writes += int64(len(adds))
	o.asked.reads += int64(len(reads))
	if len(adds) > 0 {
		if o.counters[counter] == nil {
			o.counters[counter] = &buckets{}
		}
		o.counters[counter].add(adds, expires)
	}
	return o.Starter.Trip(context.WithoutCancel(ctx), counter, by, adds, expires, reads, values)
}

func (o *observed) Start(ctx context.Context, counter string, by int64, adds []uint64, expires []int64, reads []uint64, values []int64) func() (int, error) {
	landed, err := o.Trip(ctx, counter, by, adds, expires, reads, values)
	return func() (int, error) { return landed, err }
}

func (o *observed) RollBack(ctx context.Context, counter string, by int64, adds []uint64, landed int) error {
	o.asked.trips++
	o.asked.writes += int64(landed)
	return o.Starter.RollBack(context.WithoutCancel(ctx), counter, by, adds, landed)
}

// buckets are those of one counter. Time does not go back, so of each level an add is to
// the newest bucket, or makes one.
type buckets struct {
	levels [hierarchy.Levels]struct {
		newest  uint64
		expires []int64 // of each that there is, the oldest first, which is the first to go
	}
}

func (b *buckets) add(added []uint64, expires []int64) {
	for level, bucket := range added {
		l := &b.levels[level]
		if len(l.expires) == 0 || l.newest != bucket {
			l.newest, l.expires = bucket, append(l.expires, expires[level])
		}
	}
}

// alive returns how many there are in the second.
func (b *buckets) alive(now int64) (n int) {
	for level := range b.levels {
		l := &b.levels[level]
		for len(l.expires) > 0 && l.expires[0] <= now {
			l.expires = l.expires[1:]
		}
		n += len(l.expires)
	}
	return n
}
