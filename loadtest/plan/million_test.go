//go:build !race

package plan

// millions is how many counters a real Memcached is filled with.
const millions = 1_000_000

// fewer is by what the smaller checks are divided.
const fewer = 1
