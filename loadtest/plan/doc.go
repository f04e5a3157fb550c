// Package plan says what a rules file and the traffic that is expected need: items and
// memory, adds, reads and trips, CPU time, and how many Memcached servers that takes.
//
// Nothing in it is counterd's arithmetic a second time: levels, lives and reads are asked
// of package hierarchy. What is its own is how events spread over buckets, and how
// Memcached lays out items. Check holds a plan against a real Memcached.
package plan
