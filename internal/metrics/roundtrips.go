package metrics

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/counterd/counterd/memcache"
)

// roundTrips counts the exchanges with the store's servers. The series of a server are all
// there from its first trip on, and dropped when it is not in the list any more.
type roundTrips struct {
	trips       *prometheus.CounterVec
	adds, reads *prometheus.CounterVec
	took        *prometheus.HistogramVec

	servers atomic.Pointer[map[string]*serverCounters] // not changed, but replaced
	list    atomic.Pointer[func() []memcache.ServerHealth]
	mu      sync.Mutex // held while servers is replaced
}

// serverCounters are the series of one server.
type serverCounters struct {
	trips       map[memcache.RoundTripKind]map[string]prometheus.Counter // by outcome
	adds, reads prometheus.Counter
	took        prometheus.Observer
}

func newRoundTrips() *roundTrips {
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "counterd_store_" + name, Help: help}, labels)
	}
	t := &roundTrips{
		trips: vector("round_trips_total", "Round trips to a server, by purpose and outcome; down: the circuit breaker is open, and the server was not asked.",
			"server", "kind", "outcome"),
		adds:  vector("adds_total", "Buckets that round trips were to add to on a server that was asked.", "server"),
		reads: vector("reads_total", "Buckets that round trips were to read on a server that was asked.", "server"),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "counterd_store_round_trip_duration_seconds", Buckets: buckets[:],
			Help: "Duration of round trips to a server that was asked, whatever the outcome.",
		}, []string{"server"}),
	}
	t.servers.Store(&map[string]*serverCounters{})
	return t
}

// OnRoundTrip counts a round trip, for a memcache.Config.
func (m *Metrics) OnRoundTrip(_ context.Context, trip memcache.RoundTrip) {
	of := m.roundTrips.of(trip.Server)
	outcome := memcache.OutcomeOf(trip.Err)
	if counter := of.trips[trip.Kind][outcome]; counter != nil {
		counter.Inc()
	}
	if trip.Kind != memcache.Exchange || outcome == memcache.OutcomeDown || outcome == memcache.OutcomeClosed {
		return
	}
	of.adds.Add(float64(trip.Adds))
	of.reads.Add(float64(trip.Reads))
	of.took.Observe(trip.Took.Seconds())
}

// of returns the server's series.
func (t *roundTrips) of(server string) *serverCounters {
	if of := (*t.servers.Load())[server]; of != nil {
		return of
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	before := *t.servers.Load()
	if of := before[server]; of != nil {
		return of
	}
	of := t.newCounters(server)
	after := maps.Clone(before)
	after[server] = of
	t.servers.Store(&after)
	return of
}

func (t *roundTrips) newCounters(server string) *serverCounters {
	of := &serverCounters{
		trips: map[memcache.RoundTripKind]map[string]prometheus.Counter{},
		adds:  t.adds.WithLabelValues(server), reads: t.reads.WithLabelValues(server), took: t.took.WithLabelValues(server),
	}
	for _, kind := range memcache.RoundTripKinds() {
		of.trips[kind] = map[string]prometheus.Counter{}
		for _, outcome := range memcache.Outcomes() {
			of.trips[kind][outcome] = t.trips.WithLabelValues(server, kind.String(), outcome)
		}
	}
	return of
}

// follow drops the series of servers that are not in the list, and has those of all that
// are.
func (t *roundTrips) follow() {
	list := t.list.Load()
	if list == nil {
		return
	}
	listed := map[string]bool{}
	for _, h := range (*list)() {
		listed[h.Name] = true
		t.of(h.Name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	after := maps.Clone(*t.servers.Load())
	for name := range after {
		if !listed[name] {
			delete(after, name)
			for _, vector := range t.vectors() {
				vector.DeletePartialMatch(prometheus.Labels{"server": name})
			}
		}
	}
	t.servers.Store(&after)
}

// vector is a prometheus.CounterVec or a prometheus.HistogramVec.
type vector interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
}

func (t *roundTrips) vectors() []vector { return []vector{t.trips, t.adds, t.reads, t.took} }

// Describe is what a prometheus.Collector has.
func (t *roundTrips) Describe(to chan<- *prometheus.Desc) {
	for _, vector := range t.vectors() {
		vector.Describe(to)
	}
}

// Collect asks no server.
func (t *roundTrips) Collect(to chan<- prometheus.Metric) {
	t.follow()
	for _, vector := range t.vectors() {
		vector.Collect(to)
	}
}
