package compare

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/loadtest/memcached"
	"github.com/counterd/counterd/memcache"
)

// hierarchical is counterd on its embedded store, at the traffic's own times, with its engine of
// buckets or that of logs.
type hierarchical struct {
	event   *events.Event
	kind    string
	limiter *limiter.Limiter
	store   *observed
	clock   clock
	ids     map[string]string // of the counters, by feature
}

// clock is what it was set to, in nanoseconds. A fleet's goroutines look at it, too.
type clock struct{ atomic.Int64 }

func (c *clock) now() time.Time { return time.Unix(0, c.Load()) }

// embeddedBytes is more than any traffic fills: that nothing was dropped is seen to.
const embeddedBytes = 1 << 40

// newHierarchical returns it with the engine of the limit's algorithm.
func newHierarchical(l events.Limit, kind string, precision events.Precision) (*hierarchical, error) {
	h := &hierarchical{event: eventOf(l, kind, precision), kind: kind, ids: map[string]string{}}
	return h, h.on(memcache.NewEmbedded(memcache.EmbeddedConfig{Clock: h.clock.now, MaxBytes: embeddedBytes}))
}

// on has it decide on a store.
func (h *hierarchical) on(kept store.Store) (err error) {
	h.store = &observed{Store: kept, counters: map[string]*buckets{}, logs: map[string]int{}}
	counters := hierarchy.NewCounters(hierarchy.Config{Store: h.store, Clock: h.clock.now})
	logs, err := eventlog.New(counters.Base())
	if err != nil {
		return err
	}
	h.limiter, err = limiter.New(limiter.Config{}, counters, logs)
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
	features := events.Features{h.kind: feature}
	if _, known := h.ids[feature]; !known {
		applied, err := h.event.Apply(nil, features)
		if err != nil {
			return false, err
		}
		h.ids[feature] = applied[0].ID
	}
	h.clock.Store(now)
	d, err := h.limiter.Hit(ctx, limiter.Hit{Event: h.event, Features: features, Cost: cost})
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

// items returns how many buckets there are.
func (h *hierarchical) items(feature string) int {
	of := h.store.counters[h.ids[feature]]
	if of == nil {
		return 0
	}
	return of.alive(h.clock.now().Unix())
}

func (h *hierarchical) bytes(feature string) int64 {
	if size := h.store.logs[h.ids[feature]]; size > 0 {
		return memcached.ChunkOfData(size)
	}
	return int64(h.items(feature)) * memcached.ChunkOf(1) // of a few digits
}

func (h *hierarchical) asked() asked { return h.store.asked }

// observed counts what the engine asks of its store, and knows which buckets and logs there are. The
// embedded store does not wait, so a deadline passes only where this process was held up: there
// is none, and decisions depend on the traffic alone.
type observed struct {
	store.Store
	asked    asked
	counters map[string]*buckets
	logs     map[string]int // the most bytes of each
}

func (o *observed) Do(ctx context.Context, ops ...*store.Op) {
	for _, op := range ops {
		o.observe(op)
	}
	o.Store.Do(context.WithoutCancel(ctx), ops...)
	for _, op := range ops {
		if op.Data && len(op.Reads) > 0 && op.Reads[0].Version != 0 {
			o.logs[op.Counter] = max(o.logs[op.Counter], len(op.Reads[0].Data))
		}
	}
}

// Capabilities has what no hit waits for done at once. It is no round trip of a decision.
func (o *observed) Capabilities() store.Capabilities {
	can := o.Store.Capabilities()
	can.Background = func(do func(context.Context)) {
		trips := o.asked.trips
		do(context.Background())
		o.asked.trips = trips
	}
	return can
}

func (o *observed) observe(op *store.Op) {
	o.asked.trips++
	o.asked.reads += int64(len(op.Reads))
	if op.Kind() == store.Subtract {
		o.asked.writes += int64(op.Receipt.On(0))
		return
	}
	o.asked.writes += int64(len(op.Writes))
	if op.Kind() != store.Add {
		return
	}
	if o.counters[op.Counter] == nil {
		o.counters[op.Counter] = &buckets{}
	}
	o.counters[op.Counter].add(op.Writes)
}

// buckets are those of one counter by their level, the oldest first, which is the first to go.
// Time does not go back, so an add is to the newest of its level, or makes one.
type buckets [hierarchy.Levels][]bucket

type bucket struct {
	item    uint64
	expires int64
}

func (b *buckets) add(adds []store.Write) {
	for level, w := range adds {
		if l := b[level]; len(l) == 0 || l[len(l)-1].item != w.Item {
			b[level] = append(l, bucket{w.Item, w.Expires})
		}
	}
}

// alive returns how many there are in the second.
func (b *buckets) alive(now int64) (n int) {
	for level, l := range b {
		for len(l) > 0 && l[0].expires <= now {
			l = l[1:]
		}
		b[level] = l
		n += len(l)
	}
	return n
}
