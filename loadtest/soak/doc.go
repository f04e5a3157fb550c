// Package soak lets counterd run for long, at the rate that saturates it, while its
// Memcached servers are killed at random, and holds what it says against an oracle: no
// acknowledged count is lost, no window holds more than its limit, no goroutine is lost,
// and its memory does not grow.
//
// The servers and the processes of counterd are children of this process, on loopback.
// The oracle's memory is bounded by the counters, not by the calls.
package soak
