package backend

import "github.com/counterd/counterd/metrics"

// Watch adds the store to a process and to its metrics.
func (b *Backend) Watch(m *metrics.Metrics, process *metrics.Process) {
	if b.fleet == nil {
		return
	}
	process.Servers = b.fleet.Health
	m.AddGauge("counterd_clock_ahead_seconds", "By how much, at the least, the clock is ahead of those of the other processes; below 0: behind them.",
		func() float64 { ahead, _ := b.fleet.ClockAhead(); return ahead.Seconds() })
	m.AddGauge("counterd_clock_wrong", "Whether that is more than a quarter of the grace: limits are incomplete.",
		func() float64 { return metrics.Truth(b.fleet.ClockWrong()) })
	if b.settings.Replicas > 1 {
		process.Replicas, process.Repair = b.fleet, b.repairer.State
	}
	if b.follower == nil {
		return
	}
	of := func(value func() float64) func(func([]string, float64) bool) {
		return func(yield func([]string, float64) bool) { yield([]string{b.settings.SourceKind()}, value()) }
	}
	m.AddGauges("counterd_server_list_failing", "Whether the last look-up of the Memcached servers failed, or its result was faulty; the servers in force stay.",
		[]string{"source"}, of(func() float64 { return metrics.Truth(b.follower.Failing()) }))
	m.AddCounters("counterd_server_list_failures_total", "Look-ups of the Memcached servers that failed, or whose result was faulty.",
		[]string{"source"}, of(func() float64 { return float64(b.follower.Failures()) }))
}
