// Package hierarchy is the engine that counts in buckets of seconds, minutes, hours and days:
// the exact sum of any window is the sum of few buckets, of a day at most 142 instead of 86,400.
// [Level], [Bucket], [Window] and [Cover] are pure arithmetic. [Counters] increments, counts and
// resets on a store, and is the engine of package limiter.
//
// Most programs use the root package, which wires these parts. Import this one to give a limiter, or
// package counting, a store or a clock of your own: begin with [NewCounters].
package hierarchy
