package main

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/hierarchy"
)

// newMetrics returns what /metrics serves: the state of the rules file, how busy the
// process is, and the process's own figures. No feature is ever a label.
func newMetrics(rules *rulesFile, limiter *hierarchy.Limiter, counters *hierarchy.Counters, listener *api.Listener) http.Handler {
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
