package main

import (
	"github.com/counterd/counterd/api/connections"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/metrics"
)

// watch has the process be among its metrics.
func watch(m *metrics.Metrics, rules *rulesFile, store store, mender *hierarchy.Repairer, limiter *hierarchy.Limiter, counters *hierarchy.Counters, cache *hierarchy.BucketCache, listener *connections.Listener) {
	process := metrics.Process{
		Rules:          rules.Rules,
		Generation:     rules.reloads.generation.Load,
		ReloadFailures: rules.reloads.failures.Load,
		Servers:        store.health,
		Repair:         mender.State,
		Limiter:        limiter,
		Counters:       counters,
		Cache:          cache,
		Connections:    listener,
	}
	if store.copies != nil {
		process.Replicas = store.copies
	}
	m.Watch(process)
}

// watchServerList has what knows the servers, a source of that kind, be among the metrics;
// nil: they are named one by one.
func watchServerList(m *metrics.Metrics, kind string, follow *fleetFollower) {
	if follow == nil {
		return
	}
	of := func(value func() float64) func(func([]string, float64) bool) {
		return func(yield func([]string, float64) bool) { yield([]string{kind}, value()) }
	}
	m.AddGauges("counterd_server_list_failing", "Whether the last look-up of the Memcached servers failed, or its result was faulty; the servers in force stay.",
		[]string{"source"}, of(func() float64 { return metrics.Truth(follow.Failing()) }))
	m.AddCounters("counterd_server_list_failures_total", "Look-ups of the Memcached servers that failed, or whose result was faulty.",
		[]string{"source"}, of(func() float64 { return float64(follow.Failures()) }))
}

// watchSpans has what became of spans be among the metrics; nil: there are none.
func watchSpans(m *metrics.Metrics, s *spans) {
	if s == nil {
		return
	}
	m.AddCounters("counterd_trace_spans_total", "Spans for the collector, by outcome; spans that wait are not counted yet.",
		[]string{"outcome"}, func(yield func([]string, float64) bool) {
			became := s.Spans()
			_ = yield([]string{"sent"}, float64(became.Sent)) &&
				yield([]string{"queue_full"}, float64(became.QueueFull)) &&
				yield([]string{"export_failed"}, float64(became.ExportFailed))
		})
}
