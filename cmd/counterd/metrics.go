package main

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// newMetrics returns what /metrics serves: the state of the rules file, and the
// process's own figures. No feature is ever a label.
func newMetrics(rules *rulesFile) http.Handler {
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
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}
