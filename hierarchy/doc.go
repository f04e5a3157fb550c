// Package hierarchy is the engine of counterd: it counts events in buckets of
// seconds, minutes, hours and days, so that the exact sum of any window is the
// sum of few buckets: of a day, at most 142 instead of 86,400.
//
// The arithmetic is pure: [Level], [Bucket], [Window] and [Cover] are functions
// of their arguments. [Counters] puts it to work with a clock and a [Store],
// which holds the buckets.
//
// Most programs use the root package, which wires these parts. Import this one for a store, a
// clock or hooks of your own: begin with [NewCounters] or [NewLimiter] on a store of package
// memcache.
package hierarchy
