//go:build race

package plan

// millions is how many counters a real Memcached is filled with: fewer, the race detector
// takes its time.
const millions = 10_000

// fewer is by what the smaller checks are divided.
const fewer = 4
