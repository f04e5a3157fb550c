// Package limiter decides hits: it gathers them in batches, makes the round trips that the
// sessions of an engine ask for, folds the answers of all limits to one verdict, rolls denied
// hits back, and retries hits denied under contention. It knows no buckets and no Memcached.
//
// Most programs use the root package, which wires these parts. Import this one for a [Limiter]
// on an engine, a store or a clock of your own: begin with [New].
package limiter
