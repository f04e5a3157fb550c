// Package memcache keeps counters' buckets: in a [Fleet] of Memcached servers,
// which any number of processes share, or [Embedded] in this process alone. Both
// are a Store as package store declares it, with the same semantics, and
// know nothing of events, windows or limits: to them a counter is a string of
// bytes, and a bucket is a number that is added to, read, deleted, and expires.
//
// Most programs use the root package. Import this one to give package hierarchy a store.
package memcache
