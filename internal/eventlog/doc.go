// Package slidinglog is the engine that keeps each counter as a log of its events, in one item of
// bytes: see package journal. A hit appends an entry and reads the log in one round trip. The place
// of the entry in the log decides it, so every process reads the same verdict.
//
// Increments, counts, histories and resets are of the same item. An increment is an entry that always
// counts, also a late one. The delete of a reset takes its place in the order of the entries.
//
// With several replicas a round trip appends to all of them. A session decides by what they hold
// together, and gives each what it lacks.
//
// A window holds its hits one by one: windows shorter than a minute slide by milliseconds. An item
// grows with the hits in its windows. Import the package to keep counters of up to about a thousand
// hits per window; package hierarchy keeps larger ones.
package eventlog
