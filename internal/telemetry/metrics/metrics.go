// Package metrics keeps the metrics of a limiter, or of a whole process, for Prometheus. docs/metrics.md
// lists them.
//
// No feature's value is ever a label, nor anything else that a client may choose freely.
// The labels come from the rules in force, the list of servers, the routes and from small
// closed sets; what the rules or the list do not have any more is dropped.
package metrics

import (
	"cmp"
	"iter"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// buckets suit what takes from 100 µs to a second.
var buckets = [...]float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}

// Metrics are the metrics of one process. OnDecision, OnRoundTrip and OnRequest are the hooks
// of the limiter, of the store and of the HTTP interface. What a part of the process counts
// itself is read at each scrape. Metrics is safe for concurrent use.
type Metrics struct {
	register   func(...prometheus.Collector)
	registry   *prometheus.Registry // nil: the program's own is used
	decisions  *decisions
	roundTrips *roundTrips
	requests   *series[request, requestCounters]
}

// New returns metrics with a registry of their own, which has those of the process itself and of requests.
func New() *Metrics {
	registry := prometheus.NewRegistry()
	m := On(registry.MustRegister)
	m.registry = registry
	m.requests = newRequests(m.Add)
	m.Add(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newBuildInfo(),
	)
	return m
}

// On returns metrics in another registry.
func On(register func(...prometheus.Collector)) *Metrics {
	m := &Metrics{register: register, decisions: newDecisions(), roundTrips: newRoundTrips()}
	m.Add(m.decisions, m.roundTrips)
	return m
}

// OnRequests registers the metrics of requests, and returns what counts one.
func OnRequests(register func(...prometheus.Collector)) func(route, method string, status int, took time.Duration) {
	m := &Metrics{requests: newRequests(register)}
	return m.OnRequest
}

// Add has more be served. Names that are there already panic.
func (m *Metrics) Add(more ...prometheus.Collector) { m.register(more...) }

// AddCounter has a number be served that only grows.
func (m *Metrics) AddCounter(name, help string, value func() float64) {
	m.Add(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value))
}

// AddGauge has a number be served.
func (m *Metrics) AddGauge(name, help string, value func() float64) {
	m.Add(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

// Handler answers with all metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// AddCounters has numbers be served that only grow, one for each list of values of the
// labels. The lists have to be few, and not of a client's choice.
func (m *Metrics) AddCounters(name, help string, labels []string, values iter.Seq2[[]string, float64]) {
	m.Add(&numbers{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue, values})
}

// AddGauges is AddCounters of numbers that may fall.
func (m *Metrics) AddGauges(name, help string, labels []string, values iter.Seq2[[]string, float64]) {
	m.Add(&numbers{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue, values})
}

// numbers are counters or gauges that another part of the process keeps.
type numbers struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	values iter.Seq2[[]string, float64]
}

// Describe and Collect are what a prometheus.Collector has.
func (n *numbers) Describe(to chan<- *prometheus.Desc) { to <- n.desc }

func (n *numbers) Collect(to chan<- prometheus.Metric) {
	for labels, value := range n.values {
		to <- prometheus.MustNewConstMetric(n.desc, n.kind, value, labels...)
	}
}

// Truth is the gauge of what is so or not: 1 or 0.
func Truth(so bool) float64 {
	if so {
		return 1
	}
	return 0
}

// newBuildInfo returns what the binary was built from, as labels of a 1.
func newBuildInfo() prometheus.Collector {
	labels := prometheus.Labels{"version": "(devel)", "revision": "unknown", "go_version": runtime.Version()}
	if build, ok := debug.ReadBuildInfo(); ok {
		labels["version"] = cmp.Or(build.Main.Version, "(devel)")
		for _, setting := range build.Settings {
			if setting.Key == "vcs.revision" {
				labels["revision"] = setting.Value
			}
		}
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "counterd_build_info", ConstLabels: labels,
		Help: "Always 1; what the binary was built from is in the labels.",
	})
	info.Set(1)
	return info
}
