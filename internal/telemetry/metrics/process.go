package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/hierarchy"
	"github.com/counterd/counterd/internal/assembly"
	"github.com/counterd/counterd/internal/backend"
	"github.com/counterd/counterd/internal/discovery"
	"github.com/counterd/counterd/internal/insight/denied"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/counting"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/overrides"
	"github.com/counterd/counterd/internal/replica/repair"
	"github.com/counterd/counterd/memcache"
)

// Process is what a process knows of itself, to be read at each scrape. Where there is no
// such thing it is nil.
type Process struct {
	Rules          func() []*events.Rules // in force: decisions are counted by their events and limits
	Generation     func() int64           // of the rules in force
	ReloadFailures func() int64           // of the rules
	Servers        func() []memcache.ServerHealth
	Replicas       interface{ PendingHints() (adds, servers int) }
	Repair         func() repair.State // of the copies
	Limiter        *limiter.Limiter
	Counters       *counting.Counters
	Buckets        *hierarchy.Counters
	Denied         *denied.History
	Overrides      *overrides.Set
	Connections    interface {
		Open() int
		Refused() int64
	}
}

// WatchParts adds the parts of a limiter to the metrics. Its decisions and round trips are counted by Hooks.
func (m *Metrics) WatchParts(parts *assembly.Parts) {
	p := Process{
		Rules: parts.AllRules, Generation: parts.Rules.Generation,
		Limiter: parts.Limiter, Counters: parts.Counters, Buckets: parts.Buckets, Denied: parts.Denied, Overrides: parts.Overrides,
	}
	if fleet := parts.Backend.Fleet(); fleet != nil {
		p.Servers = fleet.Health
		m.watchClock(fleet)
		if repairer := parts.Backend.Repairer(); repairer != nil {
			p.Replicas, p.Repair = fleet, repairer.State
		}
		if follower := parts.Backend.Follower(); follower != nil {
			m.watchServerList(parts.Settings.SourceKind(), follower)
		}
	}
	if embedded := parts.Backend.Embedded(); embedded != nil {
		m.AddCounters("counterd_memcached_evictions_total", evictionsHelp, []string{"server"},
			func(yield func([]string, float64) bool) {
				yield([]string{backend.EmbeddedName}, float64(embedded.Evicted()))
			})
	}
	m.Watch(p)
}

// evictionsHelp says what evictions are counted, also of the embedded store.
const evictionsHelp = "Items that the server evicted since its start, by its own statistics."

// Hooks returns the hooks by which decisions and round trips are counted.
func (m *Metrics) Hooks() assembly.Hooks {
	return assembly.Hooks{OnDecision: m.OnDecision, OnRoundTrip: m.OnRoundTrip}
}

func (m *Metrics) watchClock(fleet *memcache.Fleet) {
	m.AddGauge("counterd_clock_ahead_seconds", "By how much, at the least, the clock is ahead of those of the other processes; below 0: behind them.",
		func() float64 { ahead, _ := fleet.ClockAhead(); return ahead.Seconds() })
	m.AddGauge("counterd_clock_wrong", "Whether that is more than a quarter of the grace: limits are incomplete.",
		func() float64 { return Truth(fleet.ClockWrong()) })
}

// watchServerList adds the look-ups of the servers in a source of that kind.
func (m *Metrics) watchServerList(kind string, follower *discovery.Follower) {
	of := func(value func() float64) func(func([]string, float64) bool) {
		return func(yield func([]string, float64) bool) { yield([]string{kind}, value()) }
	}
	m.AddGauges("counterd_server_list_failing", "Whether the last look-up of the Memcached servers failed, or its result was faulty; the servers in force stay.",
		[]string{"source"}, of(func() float64 { return Truth(follower.Failing()) }))
	m.AddCounters("counterd_server_list_failures_total", "Look-ups of the Memcached servers that failed, or whose result was faulty.",
		[]string{"source"}, of(func() float64 { return float64(follower.Failures()) }))
}

// Watch has the process be among the metrics.
func (m *Metrics) Watch(p Process) {
	if p.Rules != nil {
		m.decisions.follow(p.Rules)
		m.AddGauge("counterd_rules_generation", "Generation of the rules in force, 1 for the rules of the start.",
			func() float64 { return float64(p.Generation()) })
	}
	if p.ReloadFailures != nil {
		m.AddCounter("counterd_rules_reload_failures_total", "Edits of the rules file that were faulty; the rules in force stayed.",
			func() float64 { return float64(p.ReloadFailures()) })
	}
	if p.Overrides != nil {
		m.AddGauges("counterd_overrides", "Temporary overrides in force; idle: the rules have no limit for it.", []string{"state"}, func(yield func([]string, float64) bool) {
			var effective, idle float64
			for _, o := range p.Overrides.List() {
				if o.Idle {
					idle++
				} else {
					effective++
				}
			}
			_ = yield([]string{"effective"}, effective) && yield([]string{"idle"}, idle)
		})
		m.AddGauge("counterd_overrides_failing", "Whether the temporary overrides cannot be read, or not be written where they are missing.",
			func() float64 { return Truth(p.Overrides.Failing()) })
	}
	if p.Servers != nil {
		m.roundTrips.list.Store(&p.Servers)
		m.Add(newServerMetrics(p.Servers))
	}
	if p.Replicas != nil {
		m.watchReplicas(p)
	}
	if p.Limiter != nil {
		m.watchLimiter(p.Limiter)
		m.addQueue("hits", p.Limiter.QueueStats)
	}
	if p.Counters != nil {
		m.addQueue("counts", p.Counters.QueueStats)
	}
	if p.Buckets != nil {
		m.AddCounter("counterd_bucket_cache_hits_total", "Closed buckets that were found in the cache.",
			func() float64 { return float64(p.Buckets.CacheStats().Hits) })
		m.AddCounter("counterd_bucket_cache_misses_total", "Closed buckets that were read from the store.",
			func() float64 { return float64(p.Buckets.CacheStats().Misses) })
	}
	if p.Denied != nil {
		m.AddCounters("counterd_denied_history_dropped_total", "Denied hits that the history of their counter lacks, by reason.",
			[]string{"reason"}, func(yield func([]string, float64) bool) {
				lost := p.Denied.Lost()
				_ = yield([]string{"full"}, float64(lost.Full)) && yield([]string{"store"}, float64(lost.Store))
			})
	}
	if p.Connections != nil {
		m.AddGauge("counterd_connections", "Connections of clients.",
			func() float64 { return float64(p.Connections.Open()) })
		m.AddCounter("counterd_connections_refused_total", "Connections refused because there were too many.",
			func() float64 { return float64(p.Connections.Refused()) })
	}
}

func (m *Metrics) watchReplicas(p Process) {
	m.AddGauge("counterd_hints_pending", "Adds that a replica did not acknowledge, and that wait to be replayed.",
		func() float64 { adds, _ := p.Replicas.PendingHints(); return float64(adds) })
	m.AddGauge("counterd_repair_counters", "Counters that the process has used: the ones that it compares if a server lists no keys.",
		func() float64 { return float64(p.Repair().Known) })
	m.AddGauge("counterd_repair_counters_left", "Items that the process is still to copy, and counters that it is to compare, or to try again.",
		func() float64 { s := p.Repair(); return float64(s.ToWalk + s.Failed) })
	m.AddGauge("counterd_repair_overflowed", "Whether some of the used counters did not fit their list.",
		func() float64 { return Truth(p.Repair().Overflowed) })
	m.AddCounter("counterd_repair_raised_buckets_total", "Items that were missing or too low on a replica, and were raised.",
		func() float64 { return float64(p.Repair().Raised) })
}

func (m *Metrics) watchLimiter(l *limiter.Limiter) {
	m.AddCounter("counterd_batches_total", "Batches of coalesced hits that were decided with the store, each of one hit or more.",
		func() float64 { return float64(l.Stats().Batches) })
	m.AddCounter("counterd_batched_hits_total", "Hits in those batches: divided by them, how many hits shared a round trip on average.",
		func() float64 { return float64(l.Stats().BatchedHits) })
	m.AddCounter("counterd_cached_denials_total", "Hits denied by a cached denial, without a round trip.",
		func() float64 { return float64(l.Stats().CachedDenials) })
}

// addQueue adds how much of something waits for the store.
func (m *Metrics) addQueue(of string, load func() engine.QueueStats) {
	labels := prometheus.Labels{"of": of}
	m.Add(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "counterd_pending", ConstLabels: labels,
			Help: "Hits and checks, or other calls, that wait for the store.",
		}, func() float64 { return float64(load().Pending) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "counterd_overload_total", ConstLabels: labels,
			Help: "Calls beyond the bound of calls that wait for the store: hits were decided by on_error, others refused.",
		}, func() float64 { return float64(load().Refused) }),
	)
}

// serverMetrics are the metrics of the store's servers.
type serverMetrics struct {
	health                                           func() []memcache.ServerHealth
	up, lostSince, repaired, evicted, down, mismatch *prometheus.Desc
}

func newServerMetrics(health func() []memcache.ServerHealth) *serverMetrics {
	describe := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("counterd_memcached_"+name, help, []string{"server"}, nil)
	}
	return &serverMetrics{
		health:    health,
		up:        describe("up", "Whether the server answers."),
		lostSince: describe("lost_since_timestamp_seconds", "Unix second before which the server has lost counters; 0: no loss is known."),
		repaired:  describe("repaired_ratio", "Part of what the server lacked that was copied to it, below 1 while anything is missing."),
		evicted:   describe("evictions_total", evictionsHelp),
		down:      describe("breaker_openings_total", "How often the server's circuit breaker opened."),
		mismatch:  describe("key_secret_mismatch", "Whether another process that uses the server has another key secret: the two count apart."),
	}
}

// Describe and Collect are what a prometheus.Collector has.
func (m *serverMetrics) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, to) }

// Collect asks no server.
func (m *serverMetrics) Collect(to chan<- prometheus.Metric) {
	for _, h := range m.health() {
		to <- prometheus.MustNewConstMetric(m.up, prometheus.GaugeValue, Truth(h.Up), h.Name)
		to <- prometheus.MustNewConstMetric(m.mismatch, prometheus.GaugeValue, Truth(h.OtherSecret), h.Name)
		to <- prometheus.MustNewConstMetric(m.lostSince, prometheus.GaugeValue, float64(h.Lost.Since), h.Name)
		to <- prometheus.MustNewConstMetric(m.repaired, prometheus.GaugeValue, repaired(h.Lost), h.Name)
		to <- prometheus.MustNewConstMetric(m.evicted, prometheus.CounterValue, float64(h.Stats.Evictions), h.Name)
		to <- prometheus.MustNewConstMetric(m.down, prometheus.CounterValue, float64(h.Openings), h.Name)
	}
}

// repaired returns the part that was copied. What was lost everywhere is missing after all was copied.
func repaired(l memcache.Lost) float64 {
	if l == (memcache.Lost{}) {
		return 1
	}
	return float64(min(l.Percent, 99)) / 100
}
