// Package store is the seam between the engines, which decide what is written and read, and
// the stores, which do it: package memcache has a fleet of Memcached servers and a store in
// process. Import it to write a store, or one that counts, delays or breaks what another
// one does.
package store
