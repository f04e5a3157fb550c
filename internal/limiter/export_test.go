package limiter

// Busy returns the number of counters on which hits are being decided.
func (l *Limiter) Busy() (counters int) {
	for i := range l.queues.shards {
		shard := &l.queues.shards[i]
		shard.mu.Lock()
		counters += len(shard.busy)
		shard.mu.Unlock()
	}
	return counters
}
