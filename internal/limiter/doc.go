// Package limiter decides hits: it adds them to their counters and admits those that all limits have room for.
//
// Most programs use the root package, which wires these parts. Import this one for a [Limiter] on an engine, a store or a
// clock of your own: begin with [New].
//
// # Why no window exceeds its limit
//
// A hit adds first. The values that the adds return order all hits on a counter, of all processes, and each hit counts
// the hits before it. Of the admitted hits of any window take the one whose add landed last: it counted all others, and
// found room. Only hits that are not admitted are undone, so a count is never too low. This holds however the hits of
// any number of processes interleave, as long as their clocks agree within a quarter of the grace and the store keeps
// the adds that it acknowledged. Package hierarchy has the proof for counters in buckets, package eventlog for logs.
//
// # Contention
//
// An add can admit a hit. Only a check can deny it. A count includes hits that are added but not decided yet, so the yes
// of an add is exact and its no is not. Two processes, a limit of 10 with room for one more, and hits A and B, each on
// a counter of its own beside the shared ones X and Y:
//
//  1. A adds to X and is 10 there. B adds to Y and is 10 there.
//  2. A adds to Y and is 11 there. B adds to X and is 11 there.
//  3. If the adds denied them, both would be denied, although there is room for one.
//  4. Instead both are undone. Then each reads its counters. If A reads first, it finds 9 and 9 and adds again; B reads
//     10 and is denied by that, or finds room too, adds, and is rejected once more.
//
// A rejected hit adds again only if a check has found room, after a random pause from the second time on, and at most
// four times. A check reads after the hit's own undo, and a round trip later than the adds that were in its way. What it
// reads also tells when the hit fits and what to cache. If the engine sets [Tally.Settled], no other hit that the count
// includes can be undone, and a rejection is a denial at once.
//
// # Reading order
//
// session.go has the interface to the engines: [Engine], [Session] and [Tally]. limiter.go has the [Limiter] and the
// loop of adds and checks; request.go what a hit brings. batch.go makes hits into a batch of tallies and ends it,
// decide.go decides, decision.go writes the answer. denials.go repeats denials without a round trip, queues.go lets hits
// share round trips, fallback.go stands in for a store that fails, mux.go joins engines, clock.go gives hits their
// second, explain.go explains counts.
package limiter
