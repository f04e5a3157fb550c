package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/counterd/counterd/memcache"
)

// serverMetrics are the metrics of the store's servers.
type serverMetrics struct {
	health                                 func() []memcache.ServerHealth
	up, lostSince, evicted, down, mismatch *prometheus.Desc
}

func newServerMetrics(health func() []memcache.ServerHealth) *serverMetrics {
	describe := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("counterd_memcached_"+name, help, []string{"server"}, nil)
	}
	return &serverMetrics{
		health:    health,
		up:        describe("up", "Whether the server answers."),
		lostSince: describe("lost_since_timestamp_seconds", "Unix second before which the server has lost counters; 0: no loss is known."),
		evicted:   describe("evictions_total", "Items that the server evicted since its start, by its own statistics."),
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
		to <- prometheus.MustNewConstMetric(m.lostSince, prometheus.GaugeValue, float64(h.Since), h.Name)
		to <- prometheus.MustNewConstMetric(m.evicted, prometheus.CounterValue, float64(h.Stats.Evictions), h.Name)
		to <- prometheus.MustNewConstMetric(m.down, prometheus.CounterValue, float64(h.Openings), h.Name)
	}
}
