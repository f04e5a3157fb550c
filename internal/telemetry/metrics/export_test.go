package metrics

// Counted returns how many events and limits have counters.
func (m *Metrics) Counted() (n int) {
	for _, counters := range m.decisions.events.counters.Range {
		n += 1 + len(counters.(*eventCounters).limits.names())
	}
	return n
}
