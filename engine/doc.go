// Package engine is the seam between the limiter, which decides hits, and the engines, which
// keep counters, each in a layout of items of its own: package hierarchy keeps them in buckets.
//
// An engine makes no round trips for a decision: a [Session] says which one it needs next, the
// limiter makes it, and the session takes in what came of it. So an engine can be tested without
// a store, a clock or a goroutine. Import this package to write an engine.
package engine
