package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/memcache"
)

// Process is what a process knows of itself, to be read at each scrape. Where there is no
// such thing it is nil.
type Process struct {
	Rules          func() *events.Rules // in force: decisions are counted by their events and limits
	Generation     func() int64         // of the rules in force
	ReloadFailures func() int64         // of the rules
	Servers        func() []memcache.ServerHealth
	Copies         interface{ Owed() (adds, servers int) }
	Mender         func() hierarchy.RepairState // of the copies
	Limiter        *hierarchy.Limiter
	Counters       *hierarchy.Counters
	Cache          *hierarchy.BucketCache
	Connections    interface {
		Open() int
		Refused() int64
	}
}

// Watch has the process be among the metrics.
func (m *Metrics) Watch(p Process) {
	if p.Rules != nil {
		m.decisions.follow(p.Rules)
		m.AddGauge("counterd_rules_generation", "Number of the rules in force, 1 for those of the start.",
			func() float64 { return float64(p.Generation()) })
		m.AddCounter("counterd_rules_reload_failures_total", "Edits of the rules file that could not be taken; the rules in force stayed.",
			func() float64 { return float64(p.ReloadFailures()) })
	}
	if p.Servers != nil {
		m.trips.list.Store(&p.Servers)
		m.Add(newServerMetrics(p.Servers))
	}
	if p.Copies != nil {
		m.watchCopies(p)
	}
	if p.Limiter != nil {
		m.watchLimiter(p.Limiter)
		m.addLoad("hits", p.Limiter.QueueStats)
	}
	if p.Counters != nil {
		m.addLoad("counts", p.Counters.QueueStats)
	}
	if p.Cache != nil {
		m.AddCounter("counterd_bucket_cache_hits_total", "Closed buckets that were wanted and remembered, so that nobody had to read them.",
			func() float64 { return float64(p.Cache.Stats().Hits) })
		m.AddCounter("counterd_bucket_cache_misses_total", "Closed buckets that were read.",
			func() float64 { return float64(p.Cache.Stats().Misses) })
	}
	if p.Connections != nil {
		m.AddGauge("counterd_connections", "Connections of clients.",
			func() float64 { return float64(p.Connections.Open()) })
		m.AddCounter("counterd_connections_refused_total", "Connections refused because there were too many.",
			func() float64 { return float64(p.Connections.Refused()) })
	}
}

func (m *Metrics) watchCopies(p Process) {
	m.AddGauge("counterd_copies_owed_adds", "Adds that some copy did not acknowledge, and that are to be made up for.",
		func() float64 { adds, _ := p.Copies.Owed(); return float64(adds) })
	m.AddGauge("counterd_mender_counters", "Counters whose copies are compared when a server may have missed something.",
		func() float64 { return float64(p.Mender().Known) })
	m.AddGauge("counterd_mender_counters_left", "Counters whose copies are still to be compared, or to be tried again.",
		func() float64 { s := p.Mender(); return float64(s.ToWalk + s.Failed) })
	m.AddGauge("counterd_mender_overflowed", "Whether there was no room for some counters: a loss cannot be said to be mended until the longest window and a day are over.",
		func() float64 { return Truth(p.Mender().Overflowed) })
	m.AddCounter("counterd_mender_raised_buckets_total", "Buckets that were missing or too low on a copy, and were made good.",
		func() float64 { return float64(p.Mender().Raised) })
}

func (m *Metrics) watchLimiter(l *hierarchy.Limiter) {
	m.AddCounter("counterd_flushes_total", "Lists of hits that were decided with the store, of one hit or of many that came at the same time.",
		func() float64 { return float64(l.Stats().Batches) })
	m.AddCounter("counterd_flushed_hits_total", "Hits in those lists: divided by them, how many shared a trip on average.",
		func() float64 { return float64(l.Stats().BatchedHits) })
	m.AddCounter("counterd_recalled_denials_total", "Hits denied by a denial that was remembered, without a trip.",
		func() float64 { return float64(l.Stats().CachedDenials) })
}

// addLoad adds how much of something waits for the store.
func (m *Metrics) addLoad(of string, load func() hierarchy.QueueStats) {
	labels := prometheus.Labels{"of": of}
	m.Add(
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
