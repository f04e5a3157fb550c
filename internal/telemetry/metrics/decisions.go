package metrics

import (
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

// shadowDenied is the verdict of a limit that would have denied, were it not a shadow.
const shadowDenied = service.Unavailable

// decisions counts decisions by event and limit. The series are those of the rules in
// force, all of them there from the beginning, at zero; those of events and limits that a
// reload has removed are dropped.
type decisions struct {
	decided, onError, limit, near *prometheus.CounterVec

	rules  atomic.Pointer[func() []*events.Rules] // in force; no two have an event of one name
	series atomic.Pointer[eventSeries]
	mu     sync.Mutex // held while the series are renewed
}

// eventSeries are the series of some rules.
type eventSeries struct {
	rules  []*events.Rules
	events map[*events.Event]*eventCounters
	names  map[string]*eventCounters
}

// eventCounters are the series of one event.
type eventCounters struct {
	decided [len(calls)][len(verdicts)]prometheus.Counter
	onError [len(onErrors)]prometheus.Counter
	limits  map[string]*limitCounters // by their names
}

// limitCounters are the series of one limit.
type limitCounters struct {
	decided [len(limitVerdicts)]prometheus.Counter
	near    prometheus.Counter
}

func newDecisions() *decisions {
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "counterd_" + name, Help: help}, labels)
	}
	d := &decisions{
		decided: vector("decisions_total", "Hits and checks by their decision; unavailable: on_error refused them, because the store did not answer.",
			"event", "call", "verdict"),
		onError: vector("on_error_decisions_total", "Hits that were decided, wholly or in part, without the store, by what on_error says.",
			"event", "on_error"),
		limit: vector("limit_decisions_total", "Hits by the decision of each of their limits; without limits for which the store did not answer.",
			"event", "limit", "verdict"),
		near: vector("limit_near_total", "Hits that a limit admitted with its window at 80% of the limit or more.",
			"event", "limit"),
	}
	d.series.Store(new(eventSeries))
	return d
}

// follow has decisions be counted by the events and limits of the rules in force, which
// the function returns. Before, none are.
func (d *decisions) follow(inForce func() []*events.Rules) {
	d.rules.Store(&inForce)
	d.renew()
}

// OnDecision counts a decision, for a limiter.Config.
func (m *Metrics) OnDecision(_ context.Context, h limiter.Hit, d *events.Decision, call limiter.Call) {
	counters := m.decisions.of(h.Event)
	if counters == nil {
		return // the event has just been removed
	}
	counters.decided[call-limiter.CallHit][service.OutcomeOf(d)].Inc()
	if call == limiter.CallHit {
		counters.countLimits(d.Limits)
	}
}

// countLimits counts what the limits of a hit said.
func (c *eventCounters) countLimits(limits []events.LimitState) {
	var failed [len(onErrors)]bool
	for i := range limits {
		s := &limits[i]
		if s.Failed {
			failed[s.OnError] = true
			if s.Unknown {
				continue
			}
		}
		if of := c.limits[s.Name]; of != nil {
			of.count(s)
		}
	}
	for onError, did := range failed {
		if did {
			c.onError[onError].Inc()
		}
	}
}

func (c *limitCounters) count(s *events.LimitState) {
	switch {
	case s.Allowed:
		c.decided[service.Allowed].Inc()
		if isNear(s) {
			c.near.Inc()
		}
	case s.Shadow:
		c.decided[shadowDenied].Inc()
	default:
		c.decided[service.Denied].Inc()
	}
}

// isNear reports whether four fifths of the limit are used, or more. A feature on its allow
// list is not near it.
func isNear(s *events.LimitState) bool {
	return s.Listing != events.Allowed && s.Count >= s.Most()-s.Most()/5
}

// of returns the event's series. One that the rules in force do not have, because they are
// new, has those of its name.
func (d *decisions) of(event *events.Event) *eventCounters {
	series := d.series.Load()
	if counters := series.events[event]; counters != nil {
		return counters
	}
	if inForce := d.rules.Load(); inForce != nil && !slices.Equal((*inForce)(), series.rules) {
		d.renew()
		series = d.series.Load()
	}
	return series.names[event.Name]
}

// renew has the series be those of the rules in force.
func (d *decisions) renew() {
	inForce := d.rules.Load()
	if inForce == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	before, rules := d.series.Load(), (*inForce)()
	if slices.Equal(before.rules, rules) {
		return
	}
	after := &eventSeries{rules: rules, events: map[*events.Event]*eventCounters{}, names: map[string]*eventCounters{}}
	for _, of := range rules {
		for name, event := range of.Events {
			counters := d.newCounters(event)
			after.events[event], after.names[name] = counters, counters
		}
	}
	d.series.Store(after)
	d.drop(before, after)
}

func (d *decisions) newCounters(event *events.Event) *eventCounters {
	c := &eventCounters{limits: map[string]*limitCounters{}}
	for i, call := range calls {
		for _, verdict := range verdicts {
			c.decided[i][verdict] = d.decided.WithLabelValues(event.Name, call.String(), verdict.String())
		}
	}
	for _, onError := range onErrors {
		c.onError[onError] = d.onError.WithLabelValues(event.Name, onError.String())
	}
	for i := range event.Rules {
		rule := &event.Rules[i]
		d.addLimits(c, event.Name, rule.Limits)
		for _, limits := range rule.Overrides {
			d.addLimits(c, event.Name, limits)
		}
	}
	return c
}

// addLimits adds the series of limits. Those of one name are one.
func (d *decisions) addLimits(c *eventCounters, event string, limits []events.Limit) {
	for _, limit := range limits {
		if c.limits[limit.Name] != nil {
			continue
		}
		of := &limitCounters{near: d.near.WithLabelValues(event, limit.Name)}
		for verdict, name := range limitVerdicts {
			of.decided[verdict] = d.limit.WithLabelValues(event, limit.Name, name)
		}
		c.limits[limit.Name] = of
	}
}

// drop drops the series that are not among those after.
func (d *decisions) drop(before, after *eventSeries) {
	for name, was := range before.names {
		is := after.names[name]
		if is == nil {
			for _, vector := range []*prometheus.CounterVec{d.decided, d.onError} {
				vector.DeletePartialMatch(prometheus.Labels{"event": name})
			}
		}
		for limit := range was.limits {
			if is == nil || is.limits[limit] == nil {
				labels := prometheus.Labels{"event": name, "limit": limit}
				d.limit.DeletePartialMatch(labels)
				d.near.DeletePartialMatch(labels)
			}
		}
	}
}

// Describe is what a prometheus.Collector has.
func (d *decisions) Describe(to chan<- *prometheus.Desc) {
	for _, vector := range []*prometheus.CounterVec{d.decided, d.onError, d.limit, d.near} {
		vector.Describe(to)
	}
}

// Collect has no series of rules that are not in force any more.
func (d *decisions) Collect(to chan<- prometheus.Metric) {
	d.renew()
	for _, vector := range []*prometheus.CounterVec{d.decided, d.onError, d.limit, d.near} {
		vector.Collect(to)
	}
}
