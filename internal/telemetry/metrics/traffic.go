package metrics

import (
	"context"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/counterd/counterd/memcache"
)

// series are series by a key, each made when it is first asked for and then found without a lock.
type series[K comparable, V any] struct {
	add   func(K) V
	known atomic.Pointer[map[K]V] // not changed, but replaced
	mu    sync.Mutex              // held while known is replaced
}

func newSeries[K comparable, V any](add func(K) V) *series[K, V] {
	s := &series[K, V]{add: add}
	s.known.Store(&map[K]V{})
	return s
}

func (s *series[K, V]) of(key K) V {
	if of, known := (*s.known.Load())[key]; known {
		return of
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if of, known := (*s.known.Load())[key]; known {
		return of
	}
	after := maps.Clone(*s.known.Load())
	after[key] = s.add(key)
	s.known.Store(&after)
	return after[key]
}

// drop forgets the keys for which gone returns true.
func (s *series[K, V]) drop(gone func(K) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	after := maps.Clone(*s.known.Load())
	maps.DeleteFunc(after, func(key K, _ V) bool { return gone(key) })
	s.known.Store(&after)
}

// request is what a request over HTTP is counted by. Routes are templates and methods the usual
// ones, or other, and statuses are the server's choice: so the series are bounded.
type request struct {
	route, method string
	status        int
}

type requestCounters struct {
	served prometheus.Counter
	took   prometheus.Observer
}

// newRequests adds the requests over HTTP.
func newRequests(register func(...prometheus.Collector)) *series[request, requestCounters] {
	served := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "counterd_http_requests_total",
		Help: "Requests that were answered, by the template of their route; other: no route or not its method, or an unusual method.",
	}, []string{"route", "method", "code"})
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "counterd_http_request_duration_seconds", Buckets: buckets[:],
		Help: "Duration of requests, from the end of their header until their answer was written.",
	}, []string{"route"})
	register(served, took)
	return newSeries(func(of request) requestCounters {
		return requestCounters{served.WithLabelValues(of.route, of.method, strconv.Itoa(of.status)), took.WithLabelValues(of.route)}
	})
}

// OnRequest counts a request, for an api.Config.
func (m *Metrics) OnRequest(route, method string, status int, took time.Duration) {
	of := m.requests.of(request{route, method, status})
	of.served.Inc()
	of.took.Observe(took.Seconds())
}

// call is what a call of Envoy's rate limit service is counted by. Domains are the configured ones or events,
// or other, and codes are the server's choice: so the series are bounded.
type call struct{ domain, code string }

// WatchCalls adds the calls of Envoy's rate limit service, and returns what counts them and their faults, for an
// rls.Config.
func (m *Metrics) WatchCalls() (onCall func(domain, code string, took time.Duration), onFault func(domain, fault string)) {
	served := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "counterd_rls_requests_total",
		Help: "Calls of Envoy's rate limit service, by their domain and by OK, OVER_LIMIT or the gRPC code of their error; other: no domain of the configuration, and no event.",
	}, []string{"domain", "code"})
	took := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "counterd_rls_request_duration_seconds", Buckets: buckets[:],
		Help: "Duration of calls of Envoy's rate limit service, from the end of their request until they were decided.",
	})
	faulty := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "counterd_rls_faults_total",
		Help: "Calls of Envoy's rate limit service with a fault, by their domain and by what is at fault: the call, which is refused; a descriptor, which on_error decides; the domain, which is unknown, so that the call passes.",
	}, []string{"domain", "fault"})
	for _, fault := range []string{"call", "domain"} {
		faulty.WithLabelValues("other", fault) // begins at 0, so that the first is seen to be counted
	}
	m.Add(served, took, faulty)
	calls := newSeries(func(of call) prometheus.Counter { return served.WithLabelValues(of.domain, of.code) })
	return func(domain, code string, duration time.Duration) {
		calls.of(call{domain, code}).Inc()
		took.Observe(duration.Seconds())
	}, func(domain, fault string) { faulty.WithLabelValues(domain, fault).Inc() }
}

// roundTrips counts the exchanges with the store's servers. The series of a server are all
// there from its first trip on, and dropped when it is not in the list any more.
type roundTrips struct {
	trips       *prometheus.CounterVec
	adds, reads *prometheus.CounterVec
	took        *prometheus.HistogramVec
	list        atomic.Pointer[func() []memcache.ServerHealth]
	*series[string, *serverCounters]
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
	t.series = newSeries(t.newCounters)
	return t
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
	t.drop(func(server string) bool {
		if !listed[server] {
			for _, vector := range t.vectors() {
				vector.DeletePartialMatch(prometheus.Labels{"server": server})
			}
		}
		return !listed[server]
	})
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
