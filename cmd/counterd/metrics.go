package main

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/memcache"
)

// newMetrics returns what /metrics serves: the state of the rules file and of the
// store's servers, where it has any, how busy the process is, and its own figures. No
// feature is ever a label.
func newMetrics(rules *rulesFile, store store, mender *hierarchy.Mender, limiter *hierarchy.Limiter, counters *hierarchy.Counters, listener *api.Listener) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "counterd_rules_generation",
			Help: "Number of the rules in force, 1 for those of the start.",
		}, func() float64 { return float64(rules.reloads.generation.Load()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "counterd_rules_reload_failures_total",
			Help: "Edits of the rules file that could not be taken; the rules in force stayed.",
		}, func() float64 { return float64(rules.reloads.failures.Load()) }),
	)
	if store.health != nil {
		registry.MustRegister(newServerMetrics(store.health))
	}
	if store.copies != nil {
		registry.MustRegister(copiesMetrics(store.copies, mender)...)
	}
	for what, load := range map[string]func() hierarchy.Load{"hits": limiter.Load, "counts": counters.Load} {
		labels := prometheus.Labels{"of": what}
		registry.MustRegister(
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "counterd_pending", ConstLabels: labels,
				Help: "Hits and checks, or other calls, that wait for the store.",
			}, func() float64 { return float64(load().Pending) }),
			prometheus.NewCounterFunc(prometheus.CounterOpts{
				Name: "counterd_overload_total", ConstLabels: labels,
				Help: "Those for which too much waited for the store: hits were decided by on_error, others refused.",
			}, func() float64 { return float64(load().Refused) }),
		)
	}
	registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "counterd_connections",
			Help: "Connections of clients.",
		}, func() float64 { return float64(listener.Open()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "counterd_connections_refused_total",
			Help: "Connections refused because there were too many.",
		}, func() float64 { return float64(listener.Refused()) }),
	)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

// copiesMetrics are the metrics of the copies of counters.
func copiesMetrics(fleet *memcache.Fleet, mender *hierarchy.Mender) []prometheus.Collector {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "counterd_" + name, Help: help}, value)
	}
	return []prometheus.Collector{
		gauge("copies_owed_adds", "Adds that some copy did not acknowledge, and that are to be made up for.",
			func() float64 { adds, _ := fleet.Owed(); return float64(adds) }),
		gauge("mender_counters", "Counters whose copies are compared when a server may have missed something.",
			func() float64 { return float64(mender.State().Known) }),
		gauge("mender_counters_left", "Counters whose copies are still to be compared, or to be tried again.",
			func() float64 { s := mender.State(); return float64(s.ToWalk + s.Failed) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "counterd_mender_raised_buckets_total",
			Help: "Buckets that were missing or too low on a copy, and were made good.",
		}, func() float64 { return float64(mender.State().Raised) }),
	}
}

// serverMetrics are the metrics of the store's servers.
type serverMetrics struct {
	health                       func() []memcache.ServerHealth
	up, lostSince, evicted, down *prometheus.Desc
}

func newServerMetrics(health func() []memcache.ServerHealth) *serverMetrics {
	describe := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("counterd_memcached_"+name, help, []string{"server"}, nil)
	}
	return &serverMetrics{
		health:    health,
		up:        describe("up", "Whether the server answers."),
		lostSince: describe("lost_since_seconds", "Unix second before which the server has lost what it held; 0 where nothing is known to be lost."),
		evicted:   describe("evictions_total", "Items that the server, by its own statistics, dropped since its start before they expired."),
		down:      describe("breaker_openings_total", "How often the server was found to be down."),
	}
}

// Describe and Collect are what a prometheus.Collector has.
func (m *serverMetrics) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, to) }

// Collect asks no server.
func (m *serverMetrics) Collect(to chan<- prometheus.Metric) {
	for _, h := range m.health() {
		up := 0.0
		if h.Up {
			up = 1
		}
		to <- prometheus.MustNewConstMetric(m.up, prometheus.GaugeValue, up, h.Name)
		to <- prometheus.MustNewConstMetric(m.lostSince, prometheus.GaugeValue, float64(h.Since), h.Name)
		to <- prometheus.MustNewConstMetric(m.evicted, prometheus.CounterValue, float64(h.Stats.Evictions), h.Name)
		to <- prometheus.MustNewConstMetric(m.down, prometheus.CounterValue, float64(h.Openings), h.Name)
	}
}
