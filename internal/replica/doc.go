// Package replication keeps each counter on several servers at once, so that one of them may
// die, come back empty, or be added, and what was counted stays. A [Set] is a store over
// servers. Import it to replicate counters on servers other than those of package memcache.
//
// A counter lives on the first servers of its rendezvous order. Each round trip goes to all of
// them at once, and of their values the largest counts. The set keeps hints of the adds that a
// replica did not acknowledge, and replays them when it answers again; it detects which servers
// have lost what they held. Package replication/repair makes replicas whole again. There is no
// coordinator, and nothing is moved: see docs/design.md.
package replica
