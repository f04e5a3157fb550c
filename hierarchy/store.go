package hierarchy

import "github.com/counterd/counterd/store"

// Replicas is a Store whose replicas of a counter a Repairer can compare and repair one by
// one: it reads with versions, creates and swaps buckets on a named server.
type Replicas interface {
	store.Store
	// ServersUp returns the names of those servers that have the counter and are up.
	ServersUp(counter string) []string
	// Differing returns counters whose replicas were seen to differ since the last call.
	Differing() []string
	// Gaps returns a number that grows whenever a server may have missed something.
	Gaps() uint64
}
