// Package memcached starts a Memcached server for a load test, and reads what it says of
// itself: what it has done, and the memory that it takes.
package memcached
