// Package run loads a target in the open model, and tells what became of it: requests
// arrive when they are due, whatever happens to those before, and each one's latency
// counts from there.
//
// Most callers want [Run] with a target of [NewHTTP] or [NewEmbedded], or [FindMax], which
// looks for the rate that the target bears.
//
// Memory is bounded for any length: what waits is two numbers, latencies are histograms,
// and the timeline has at most maxSlots slots, which get longer as the run does.
package run
