// Package engine is the seam between the limiter, which decides hits, and the engines, which
// keep counters, each in a layout of items of its own: package hierarchy keeps them in buckets.
//
// An engine makes no round trip of a decision: a [Session] says which one is next, the limiter
// makes it, and the session takes in its result. So an engine is tested without a store, a clock
// or a goroutine. Import this package to write an engine.
package engine
