package main

import (
	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/metrics"
)

// watch has the process be among its metrics.
func watch(m *metrics.Metrics, rules *rulesFile, store store, mender *hierarchy.Mender, limiter *hierarchy.Limiter, counters *hierarchy.Counters, cache *hierarchy.BucketCache, listener *api.Listener) {
	process := metrics.Process{
		Rules:          rules.Rules,
		Generation:     rules.reloads.generation.Load,
		ReloadFailures: rules.reloads.failures.Load,
		Servers:        store.health,
		Mender:         mender.State,
		Limiter:        limiter,
		Counters:       counters,
		Cache:          cache,
		Connections:    listener,
	}
	if store.copies != nil {
		process.Copies = store.copies
	}
	m.Watch(process)
}
