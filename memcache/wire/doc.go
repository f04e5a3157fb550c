// Package wire speaks to one Memcached server: connections that many calls share (the meta
// path) or that one trip has to itself (the classic path), the commands and their answers, and
// the items that are no counters'. It knows no fleet and no replicas. Package memcache is made
// of it; import that one.
package wire
