package metrics

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/service"
)

var (
	calls         = [...]limiter.Call{limiter.CallHit, limiter.CallCheck}
	verdicts      = [...]service.Outcome{service.Allowed, service.Denied, service.Unavailable}
	limitVerdicts = [...]string{service.Allowed: "allowed", service.Denied: "denied", shadowDenied: "shadow_denied"}
	onErrors      = [...]events.OnError{events.OnErrorAllow, events.OnErrorDeny, events.OnErrorLocal}
)

// shadowDenied takes the place of Unavailable, which no limit needs: it is the verdict of a limit that would have denied,
// were it not a shadow.
const shadowDenied = service.Unavailable

// minCreated is how many counters hits create at least before one drops those of removed events and limits.
const minCreated = 256

// decisions counts decisions by event and limit. A scrape sends the series of the rules in force, zero ones too, and
// drops the counters of other events and limits. A hit finds its counters without a lock and creates them if they
// do not exist, so it waits for no reload and no scrape. If nobody scrapes, a hit drops the others now and then: reloads
// would otherwise leave more and more.
type decisions struct {
	decided, onError, limit, near *prometheus.Desc

	rules  atomic.Pointer[func() []*events.Rules] // returns the rules in force, which share no event; nil before follow
	events named[eventCounters]

	created  atomic.Int64 // counters since the last drop
	dropping sync.Mutex
}

// eventCounters are the counters of one event.
type eventCounters struct {
	decided [len(calls)][len(verdicts)]atomic.Int64
	onError [len(onErrors)]atomic.Int64
	limits  named[limitCounters] // by their label
}

// limitCounters are the counters of one limit.
type limitCounters struct {
	decided [len(limitVerdicts)]atomic.Int64
	near    atomic.Int64
}

// named are counters by their names. They are safe for concurrent use.
type named[V any] struct{ counters sync.Map }

// get returns the counters of a name. It creates them, and adds 1 to created, if they do not exist.
func (n *named[V]) get(name string, created *atomic.Int64) *V {
	counters, ok := n.counters.Load(name)
	if !ok {
		counters, ok = n.counters.LoadOrStore(name, new(V))
	}
	if !ok {
		created.Add(1)
	}
	return counters.(*V)
}

// names returns the names of all counters, each with true.
func (n *named[V]) names() map[string]bool {
	names := make(map[string]bool)
	for name := range n.counters.Range {
		names[name.(string)] = true
	}
	return names
}

// drop removes the counters of those names.
func (n *named[V]) drop(names map[string]bool) {
	for name := range names {
		n.counters.Delete(name)
	}
}

func newDecisions() *decisions {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("counterd_"+name, help, labels, nil)
	}
	return &decisions{
		decided: describe("decisions_total", "Hits and checks by their decision; unavailable: on_error refused them, because the store did not answer.",
			"event", "call", "verdict"),
		onError: describe("on_error_decisions_total", "Hits that were decided, wholly or in part, without the store, by what on_error says.",
			"event", "on_error"),
		limit: describe("limit_decisions_total", "Hits by the decision of each of their limits; without limits for which the store did not answer.",
			"event", "limit", "verdict"),
		near: describe("limit_near_total", "Hits that a limit admitted with its window at 80% of the limit or more.",
			"event", "limit"),
	}
}

// follow starts the counting; a scrape then sends the series of the rules that inForce returns.
func (d *decisions) follow(inForce func() []*events.Rules) { d.rules.Store(&inForce) }

// OnDecision counts a decision, for a limiter.Config. Before follow it counts nothing.
func (m *Metrics) OnDecision(_ context.Context, h limiter.Hit, d *events.Decision, call limiter.Call) {
	if m.decisions.rules.Load() == nil {
		return
	}
	var created atomic.Int64
	counters := m.decisions.events.get(h.Event.Name, &created)
	counters.decided[call-limiter.CallHit][service.OutcomeOf(d)].Add(1)
	if call == limiter.CallHit {
		counters.countLimits(d.Limits, &created)
	}
	if n := created.Load(); n > 0 {
		m.decisions.noteCreated(n)
	}
}

// noteCreated drops the counters that are not of the rules in force if hits have created very many since the last drop.
func (d *decisions) noteCreated(n int64) {
	created := d.created.Add(n)
	if created <= minCreated {
		return
	}
	inForce := (*d.rules.Load())()
	most := int64(minCreated)
	for _, rules := range inForce {
		most += 4 * int64(len(rules.Events))
	}
	if created > most && d.dropping.TryLock() {
		d.drop(inForce)
		d.dropping.Unlock()
	}
}

// drop drops the counters that are not of those rules, unless others are in force by now: hits may have counted their
// events and limits already. The next drop then does it.
func (d *decisions) drop(inForce []*events.Rules) {
	d.created.Store(0)
	gone := d.events.names()
	goneLimits := make(map[*eventCounters]map[string]bool)
	for _, rules := range inForce {
		for name, event := range rules.Events {
			if !gone[name] {
				continue // nothing of it was counted
			}
			delete(gone, name)
			counters := d.events.get(name, &d.created)
			names := counters.limits.names()
			for series := range seriesOf(event) {
				delete(names, series)
			}
			goneLimits[counters] = names
		}
	}
	if !slices.Equal(inForce, (*d.rules.Load())()) {
		return
	}
	d.events.drop(gone)
	for counters, names := range goneLimits {
		counters.limits.drop(names)
	}
}

// seriesOf returns the series of the event's limits. Limits of one name, and those of overrides, share one.
func seriesOf(event *events.Event) map[string]bool {
	series := make(map[string]bool)
	add := func(limits []events.Limit) {
		for _, limit := range limits {
			series[cmp.Or(limit.Series, limit.Name)] = true
		}
	}
	for i := range event.Rules {
		add(event.Rules[i].Limits)
		for _, limits := range event.Rules[i].Overrides {
			add(limits)
		}
	}
	return series
}

// countLimits counts the decision of each limit of a hit, and each on_error that stood in for the store.
func (c *eventCounters) countLimits(limits []events.LimitState, created *atomic.Int64) {
	var failed [len(onErrors)]bool
	for i := range limits {
		s := &limits[i]
		if s.Failed {
			failed[s.OnError] = true
			if s.Unknown {
				continue
			}
		}
		c.limits.get(cmp.Or(s.Series, s.Name), created).count(s)
	}
	for onError, did := range failed {
		if did {
			c.onError[onError].Add(1)
		}
	}
}

func (c *limitCounters) count(s *events.LimitState) {
	switch {
	case s.Allowed:
		c.decided[service.Allowed].Add(1)
		if isNear(s) {
			c.near.Add(1)
		}
	case s.Shadow:
		c.decided[shadowDenied].Add(1)
	default:
		c.decided[service.Denied].Add(1)
	}
}

// isNear reports whether four fifths of the limit are used, or more. A feature on its allow
// list is not near it.
func isNear(s *events.LimitState) bool {
	return s.Listing != events.Allowed && s.Count >= s.Most()-s.Most()/5
}

// Describe implements prometheus.Collector.
func (d *decisions) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{d.decided, d.onError, d.limit, d.near} {
		to <- desc
	}
}

// Collect has no series of rules that are not in force any more.
func (d *decisions) Collect(to chan<- prometheus.Metric) {
	load := d.rules.Load()
	if load == nil {
		return
	}
	inForce := (*load)()
	for _, rules := range inForce {
		for name, event := range rules.Events {
			d.events.get(name, &d.created).collect(d, event, to)
		}
	}
	d.drop(inForce)
}

// collect sends the event's series.
func (c *eventCounters) collect(d *decisions, event *events.Event, to chan<- prometheus.Metric) {
	send := func(desc *prometheus.Desc, count *atomic.Int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(count.Load()), labels...)
	}
	for i, call := range calls {
		for _, verdict := range verdicts {
			send(d.decided, &c.decided[i][verdict], event.Name, call.String(), verdict.String())
		}
	}
	for _, onError := range onErrors {
		send(d.onError, &c.onError[onError], event.Name, onError.String())
	}
	for series := range seriesOf(event) {
		counters := c.limits.get(series, &d.created)
		for verdict, name := range limitVerdicts {
			send(d.limit, &counters.decided[verdict], event.Name, series, name)
		}
		send(d.near, &counters.near, event.Name, series)
	}
}
