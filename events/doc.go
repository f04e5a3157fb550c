// Package events is the vocabulary of counterd: events, features, the counters that they name, the rules that define
// how each event is counted, overrides of rules, and decisions. It validates features and writes and reads rates; it
// neither counts nor decides.
// Package rulesfile reads rules from a file.
//
// An event says what was done (url_shorten). A feature says by which actor: a value of
// a kind (ip:192.168.0.1), or values of several kinds together. One event with
// one feature is a counter.
//
// All types are plain values. They are safe for concurrent use as long as
// they are not changed, and nothing in this module changes them after construction.
//
// Most programs use the root package. Import this one to make rules in Go, or to name counters
// for packages hierarchy and memcache.
package events
