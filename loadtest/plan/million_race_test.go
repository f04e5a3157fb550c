//go:build race

package plan

// millions is how many counters a real Memcached is filled with: fewer, the race detector
// takes its time.
const millions = 20_000
