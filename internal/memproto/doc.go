// Package wire speaks to one Memcached server: connections that many calls share (the meta
// path) or that one trip has to itself (the classic path), the commands and their answers, and
// the items of the server itself, such as its instance marker. It knows no fleet and no
// replicas. Import package memcache instead, which is made of it; import this one to change how
// counterd speaks to a server.
package memproto
