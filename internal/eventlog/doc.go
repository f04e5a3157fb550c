// Package eventlog is the engine that keeps each counter as a log of its events, in one item of bytes: see package
// journal. A hit appends an entry, and reads the log in the same round trip. Import it to keep counters of up to about a
// thousand hits per window; package hierarchy keeps larger ones.
//
// # Why no window exceeds its limit
//
// Appends to an item are atomic, so the log has one order, and every process reads the same. An entry is decided by all
// that counts before it in the log, whatever its time. Take any window, and of the admitted hits in it X, the last one in
// the log. All others precede X, and their times are later than X's less the length of the window, because all lie in one
// window. So X was decided with all of them counted, and it fitted. Clocks that differ change which hits are admitted,
// never how many.
//
// Four rules keep that true. A hit whose entry is not in the log that was read is not admitted: it is appended again. A
// hit that is undone is voided, and counts until its void is in the log. A rewrite makes verdicts final, and replaces
// only the log that was read, by version; so does what replaces a damaged or foreign item. And an entry whose time is not
// after the floor of a rewrite is stale: it may be in the sums already, and is appended again with a later time.
//
// A hit that other counters may deny, and any hit on a log with replicas, is pending: the log counts it in full, and the
// counts before it decide it. Replicas order the entries differently. What is before a hit on any replica counts, so one
// replica that loses nothing, and that every hit reaches, is enough for the proof. Such a hit is not decided before all
// replicas that answered have it.
//
// # Reading order
//
//	session.go   a batch: Add, Check, Undo and Search for all counters side by side
//	log.go       one log of a batch, and its round trips
//	place.go     what a log does until its entries have their place
//	batch.go     the hits as entries
//	view.go      counts, searches and explanations of a log by the rules
//	replicas.go  what the replicas of a log hold, lack, and get
//	life.go      how long a log lives, when it is rewritten, and as what
//	settle.go    reservations and leases
//	counting.go  increments, counts, histories and resets
//	repair.go    replicas without hits
//	engine.go    the engine
package eventlog
