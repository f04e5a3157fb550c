// Package memcache has the stores of counters: a [Fleet] of Memcached servers, which any number
// of processes share, and [Embedded], in this process alone. Both implement the Store of package
// store with the same semantics. They know no events, windows or limits: a counter is a string of
// bytes, and an item is a number that is added to, read, deleted, and expires.
//
// Most programs use the root package. Import this one to give an engine a store.
package memcache
