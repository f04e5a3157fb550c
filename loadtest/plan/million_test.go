//go:build !race

package plan

// millions is how many counters a real Memcached is filled with.
const millions = 1_000_000
