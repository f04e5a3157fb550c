package eventlog_test

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/eventlog"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// grace is so long that a busy machine does not matter.
const grace = 20 * time.Second

var logItem = store.Item(store.OtherLevels, 2)

var someUser = events.Features{"ip": "192.0.2.1", "user": "ada"}

// onVirtualTime runs a subtest in a bubble: a denial that rests on a hit of another counter is tried again for a while.
func onVirtualTime(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { bubble.Test(t, test) })
}

// newEvent returns the event e of limits in YAML, which logs count, of rules of that revision.
func newEvent(tb testing.TB, revision uint64, limits string) *events.Event {
	tb.Helper()
	event := testkit.Event(tb, limits)
	for i := range event.Rules {
		rule := &event.Rules[i]
		rule.Revision = revision
		for _, limits := range slices.Collect(maps.Values(rule.Overrides)) {
			for i := range limits {
				limits[i].Algorithm = eventlog.Algorithm
			}
		}
		if rule.InLog() {
			continue
		}
		for i := range rule.Limits {
			rule.Limits[i].Algorithm = eventlog.Algorithm
		}
	}
	return event
}

func newEngine(tb testing.TB, st store.Store, clock func() time.Time) *eventlog.Engine {
	tb.Helper()
	e, err := eventlog.New(engine.Base{Store: st, Clock: clock, Grace: grace, Changes: new(engine.Changes)})
	require.NoError(tb, err)
	return e
}

// process is one process: a limiter on an engine of its own.
type process struct {
	*limiter.Limiter
	keeps  *eventlog.Engine
	tb     testing.TB
	faults []error // of the store
}

func newProcess(tb testing.TB, st store.Store, clock func() time.Time, config limiter.Config) *process {
	tb.Helper()
	p := &process{tb: tb}
	if config.OnStoreError == nil {
		config.OnStoreError = func(err error) { p.faults = append(p.faults, err) }
	}
	if config.Timeout == 0 {
		config.Timeout = grace / 2
	}
	var err error
	p.keeps = newEngine(tb, st, clock)
	p.Limiter, err = limiter.New(config, p.keeps)
	require.NoError(tb, err)
	return p
}

// hit hits with cost 1.
func (p *process) hit(event *events.Event, features events.Features) events.Decision {
	p.tb.Helper()
	return p.costs(event, features, 1)
}

func (p *process) costs(event *events.Event, features events.Features, cost int64) events.Decision {
	p.tb.Helper()
	d, err := p.Hit(context.Background(), limiter.Hit{Event: event, Features: features, Cost: cost})
	require.NoError(p.tb, err)
	return d
}

func (p *process) check(event *events.Event, features events.Features) events.Decision {
	p.tb.Helper()
	d, err := p.Check(context.Background(), limiter.Hit{Event: event, Features: features, Cost: 1})
	require.NoError(p.tb, err)
	return d
}

// ipOf returns the counter of the ip of someUser.
func ipOf(tb testing.TB, event *events.Event) events.Counter {
	tb.Helper()
	counter, err := event.Counter(events.Features{"ip": someUser["ip"]})
	require.NoError(tb, err)
	return counter
}

// counterOf returns the ID of the counter of the kind.
func counterOf(tb testing.TB, event *events.Event, kind string) string {
	tb.Helper()
	counter, err := event.Counter(events.Features{kind: someUser[kind]})
	require.NoError(tb, err)
	return counter.ID()
}

// watched is a store whose round trips are counted and may be changed.
type watched struct {
	store.Store
	trips      atomic.Int64
	before     func(*store.Op) // nil: nothing
	after      func(*store.Op)
	background func(func(context.Context)) // nil: there is none, and hits wait
}

func (w *watched) Capabilities() store.Capabilities {
	can := w.Store.Capabilities()
	can.Background = w.background
	return can
}

func (w *watched) Do(ctx context.Context, ops ...*store.Op) {
	w.trips.Add(1)
	for _, op := range ops {
		if w.before != nil {
			w.before(op)
		}
	}
	w.Store.Do(ctx, ops...)
	for _, op := range ops {
		if w.after != nil {
			w.after(op)
		}
	}
}

// value returns the log of a counter, or nil.
func (w *watched) value(tb testing.TB, counter string) []byte {
	tb.Helper()
	op := store.Op{Counter: counter, Data: true, Reads: []store.Read{{Item: logItem}}}
	w.Store.Do(context.Background(), &op)
	require.NoError(tb, op.Err)
	return op.Reads[0].Data
}

// put writes the item of a counter.
func (w *watched) put(tb testing.TB, counter string, value []byte) {
	tb.Helper()
	w.remove(tb, counter)
	op := store.Op{Counter: counter, Data: true, Writes: []store.Write{{Kind: store.Create, Item: logItem, Data: value, Expires: 1 << 40}}}
	w.Store.Do(context.Background(), &op)
	require.NoError(tb, op.Err)
}

func (w *watched) remove(tb testing.TB, counter string) {
	tb.Helper()
	op := store.Op{Counter: counter, Writes: []store.Write{{Kind: store.Delete, Item: logItem}}}
	w.Store.Do(context.Background(), &op)
	require.NoError(tb, op.Err)
}

// besideBuckets returns both engines on one base.
func besideBuckets(tb testing.TB, st store.Store, clock func() time.Time) (*hierarchy.Counters, *eventlog.Engine) {
	tb.Helper()
	counters := hierarchy.NewCounters(hierarchy.Config{Store: st, Clock: clock, Grace: grace})
	logs, err := eventlog.New(counters.Base())
	require.NoError(tb, err)
	return counters, logs
}
