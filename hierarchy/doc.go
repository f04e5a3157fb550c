// Package hierarchy counts events in buckets of seconds, minutes, hours and days. Each event is added to one bucket of
// each level, so that any window is the sum of few buckets: a day of at most 142 instead of 86,400.
//
// [Level], [Bucket], [Window] and [Cover] are pure arithmetic. [Counters] counts on a store, and is an engine of package
// limiter. Most programs use the root package, which wires these parts. Import this one to give a limiter a store or a
// clock of your own: begin with [NewCounters].
//
// # Why no window exceeds its limit
//
// A hit adds to its buckets, the finest level first, and then reads the other buckets of its windows. Of the admitted
// hits of any window, take the hit X whose add to its rank bucket landed last. All others landed in theirs before, and
// in all finer buckets before that. X read after its adds, so X counted all of them, and was admitted only if the sum
// was within the limit. Only denied hits are undone, so no value that X read was less than the admitted hits in that
// bucket, and values that were read at different times can be added up.
//
// Fixed windows, and those of calendars, are tiled by buckets of several levels. In which of them a hit counts depends
// on its second alone, and none of them is in two windows. So X is the hit that landed in its bucket of the tiling last,
// and its add returned all others, or its reads found them.
//
// Clocks agree within a quarter of the grace, and a limiter admits a hit only within half the grace of its second. So X
// reads buckets up to the grace ahead, or up to the latest second of its process if its clock was set back. A bucket
// that ended more than twice the grace ago is closed: no hit changes it, and its count can be cached.
//
// With replicas, a hit adds to all that answer, and of each bucket the largest value counts. While one replica is
// reached by all hits, the argument holds on that replica. A replica that missed an admitted hit is told later, by a
// hint, and never of a denied one. What a check by a client reads is not cached then: it may come from a replica that
// the hits do not reach.
//
// A settlement subtracts what a reservation did not use, at most once on each replica, and only after its hit was
// admitted. A reset, a refund or a loss lowers counts, and ends the promise for what it takes away.
//
// # Files
//
// Read bucket.go and view.go, then counter.go and engine.go, which decide hits; closed.go caches, search.go finds when
// limits have room. counters.go counts without deciding; settle.go, openlist.go, refund.go and reset.go change what was
// counted. layout.go is for the repair of replicas, and for estimates.
package hierarchy
