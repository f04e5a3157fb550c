package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/loadtest/counted"
	"github.com/counterd/counterd/loadtest/process"
	"github.com/counterd/counterd/loadtest/traffic"
	"github.com/counterd/counterd/memcache"
)

// EmbeddedConfig says on which store counters and limiter run in this process. Only Event
// is needed.
type EmbeddedConfig struct {
	Event   *events.Event
	Servers []string      // of Memcached; none: the memory of this process
	Timeout time.Duration // longest wait for the store in one decision; 0: hierarchy.DefaultTimeout
	Pending int           // the most that waits for the store; 0: DefaultInFlight
}

// Embedded is the library in this process, without HTTP.
type Embedded struct {
	config   EmbeddedConfig
	limiter  *hierarchy.Limiter
	counters *hierarchy.Counters
	fleet    *memcache.Fleet // nil: the memory
	counts   *counted.Counts
	trips    atomic.Int64 // of the fleet, as it tells
	reads    atomic.Int64
}

// NewEmbedded returns it. Close frees what it holds.
func NewEmbedded(ctx context.Context, config EmbeddedConfig) (*Embedded, error) {
	if config.Event == nil {
		return nil, errors.New("run: an event is needed")
	}
	e := &Embedded{config: config}
	store, err := e.open(ctx)
	if err != nil {
		return nil, err
	}
	cache := hierarchy.NewBucketCache(0)
	grace := max(hierarchy.DefaultGrace, 2*config.Timeout)
	e.limiter, err = hierarchy.NewLimiter(hierarchy.LimiterConfig{
		Store: store, Local: memcache.NewEmbedded(memcache.EmbeddedConfig{}), Grace: grace, Timeout: config.Timeout, MaxPending: config.Pending, Cache: cache,
	})
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	e.counters = hierarchy.NewCounters(hierarchy.Config{Store: store, Grace: grace, MaxPending: config.Pending, Cache: cache})
	return e, nil
}

func (e *Embedded) open(ctx context.Context) (hierarchy.Store, error) {
	if len(e.config.Servers) == 0 {
		store := &counted.Store{Store: memcache.NewEmbedded(memcache.EmbeddedConfig{})}
		e.counts = &store.Counts
		return store, nil
	}
	fleet, err := memcache.NewFleet(ctx, memcache.Config{Servers: e.config.Servers, Timeout: e.config.Timeout, OnRoundTrip: e.tripped})
	e.fleet = fleet
	return fleet, err
}

// tripped counts an exchange with a server.
func (e *Embedded) tripped(_ context.Context, trip memcache.RoundTrip) {
	if memcache.OutcomeOf(trip.Err) == memcache.OutcomeDown {
		return // it was not asked
	}
	e.trips.Add(1)
	e.reads.Add(int64(trip.Reads))
}

// Names returns the servers.
func (e *Embedded) Names() []string {
	if e.fleet == nil {
		return []string{"the memory of this process"}
	}
	return []string{"memcached " + strings.Join(e.config.Servers, ",") + " from this process"}
}

// Close closes the connections to the servers.
func (e *Embedded) Close() error {
	if e.fleet == nil {
		return nil
	}
	return e.fleet.Close()
}

// Probe asks all servers, and makes a check or a count instead of the call.
func (e *Embedded) Probe(ctx context.Context, call traffic.Call) error {
	if e.fleet != nil {
		var faults []error
		for server, err := range e.fleet.Ping(ctx) {
			if err != nil {
				faults = append(faults, fmt.Errorf("memcached %s: %w", server, err))
			}
		}
		if err := errors.Join(faults...); err != nil {
			return err
		}
	}
	switch call.Kind {
	case traffic.Batch:
		_, err := e.limiter.Check(ctx, hierarchy.Hit{Event: e.config.Event, Features: call.Hits[0].Features, Cost: *call.Hits[0].Cost})
		return err
	case traffic.Hit, traffic.Check:
		_, err := e.limiter.Check(ctx, e.hit(call))
		return err
	}
	return e.count(ctx, call.Features, max(call.Window, time.Second))
}

func (e *Embedded) hit(call traffic.Call) hierarchy.Hit {
	return hierarchy.Hit{Event: e.config.Event, Features: call.Features, Cost: call.Cost}
}

func (e *Embedded) count(ctx context.Context, features events.Features, window time.Duration) error {
	counter, err := e.config.Event.Counter(features)
	if err == nil {
		_, err = e.counters.Count(ctx, counter, window, time.Time{})
	}
	return err
}

// Statuses of calls without HTTP.
const (
	statusOK          = "ok"
	statusDenied      = "denied"
	statusUnavailable = "unavailable" // the store could not be asked
	statusWrong       = "wrong call"
)

// Do makes the call.
func (e *Embedded) Do(ctx context.Context, _ int64, call traffic.Call) Answer {
	var err error
	switch call.Kind {
	case traffic.Hit:
		var d hierarchy.Decision
		if d, err = e.limiter.Hit(ctx, e.hit(call)); err == nil {
			return answerOf(decidedBy(&d))
		}
	case traffic.Check:
		var d hierarchy.Decision
		if d, err = e.limiter.Check(ctx, e.hit(call)); err == nil && d.Unavailable {
			err = hierarchy.ErrStore
		}
	case traffic.Increment:
		err = e.increment(ctx, call)
	case traffic.Count:
		err = e.count(ctx, call.Features, call.Window)
	case traffic.Batch:
		return e.batch(ctx, call)
	}
	return failure(err)
}

func (e *Embedded) increment(ctx context.Context, call traffic.Call) error {
	counters, err := e.config.Event.Counters(call.Features)
	if err == nil {
		_, err = e.counters.Increment(ctx, call.Cost, time.Time{}, counters...)
	}
	return err
}

func (e *Embedded) batch(ctx context.Context, call traffic.Call) Answer {
	hits := make([]hierarchy.Hit, len(call.Hits))
	for i, hit := range call.Hits {
		hits[i] = hierarchy.Hit{Event: e.config.Event, Features: hit.Features, Cost: *hit.Cost}
	}
	results, err := e.limiter.Hits(ctx, hits)
	answer := failure(err)
	for i := range results {
		if results[i].Err != nil {
			answer.Decided = append(answer.Decided, Decided{Verdict: Fault})
			continue
		}
		answer.Decided = append(answer.Decided, decidedBy(&results[i].Decision))
	}
	return answer
}

// answerOf returns the answer to a hit.
func answerOf(d Decided) Answer {
	status := map[Verdict]string{Admitted: statusOK, Denied: statusDenied, Unavailable: statusUnavailable}[d.Verdict]
	return Answer{Status: status, Failed: d.Verdict == Unavailable, Decided: []Decided{d}}
}

func failure(err error) Answer {
	switch {
	case err == nil:
		return Answer{Status: statusOK}
	case errors.Is(err, hierarchy.ErrStore):
		return Answer{Status: statusUnavailable, Failed: true}
	case errors.Is(err, events.ErrInvalid), errors.Is(err, hierarchy.ErrOutOfRange):
		return Answer{Status: statusWrong, Failed: true}
	}
	return Answer{Status: statusNone, Failed: true}
}

func decidedBy(d *hierarchy.Decision) Decided {
	out := Decided{Verdict: Denied, Limits: make([]Said, 0, len(d.Limits))}
	switch {
	case d.Allowed:
		out.Verdict = Admitted
	case d.Unavailable:
		out.Verdict = Unavailable
	}
	for i := range d.Limits {
		limit := &d.Limits[i]
		if limit.Failed {
			out.OnError = out.Verdict != Unavailable
			continue
		}
		out.Limits = append(out.Limits, Said{limit.Name, verdictOf(limit.Allowed, limit.Shadow)})
	}
	if out.Verdict == Unavailable {
		out.Limits = nil
	}
	return out
}

// Read tells what was asked of the store, and what this process has taken, the generator
// of the load included.
func (e *Embedded) Read(context.Context) Reading {
	r := Reading{Trips: e.trips.Load(), Reads: e.reads.Load()}
	if e.counts != nil {
		r.Trips, r.Reads = e.counts.Trips.Load(), e.counts.Reads.Load()
	}
	if !process.Known {
		r.ProcessesNote = "what processes take is known on Linux only"
		return r
	}
	taken, err := takenBy(os.Getpid())
	if err != nil {
		r.ProcessesNote = err.Error()
		return r
	}
	r.Processes = []Taken{taken}
	return r
}
