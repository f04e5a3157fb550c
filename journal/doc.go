// Package journal keeps all events of one counter in one value: an ordered log, to which
// processes append hits, and whose order decides every one of them. It is the arithmetic of exact
// sliding windows in one Memcached item. It has no store, no clock and no goroutine.
//
// # Verdicts
//
// The order of the entries in the value is the total order of all hits. A hit is admitted if, at
// its place, every limit of the log has room for its cost in the window that ends at its time.
// Windows shorter than a minute slide by milliseconds, longer ones by whole seconds. Entries ahead
// of the hit count if they are increments or admitted hits and no void cancels them, also those
// with a later time. An entry of several equal hits admits as many of them as fit.
//
// A pending hit may be void later: another counter may deny it, or other replicas order the
// entries differently. The log does not decide it. It counts in full, wherever it is, until it is
// void; a void takes effect wherever it is, so the set of entries decides. Its writer admits as many
// of the hits as fit behind all that counts ahead, and always voids the rest.
//
// So no window holds more than its limit, whatever the clocks: of the admitted hits of a window,
// the last in the log was decided with all others counted, whether they are pending or not. The
// proof needs the order, and that each hit has an identity of its own.
//
// # Rewrites
//
// [Log.AppendRewrite] returns a shorter value with the same verdicts, to be swapped in by
// compare-and-swap on the value that was read. It makes every verdict of the log final; pending
// hits stay pending. It drops what no
// later hit can count: its floor is a time, and a hit that is not after the floor of its log is
// stale and denied. Entries after the floor keep their identity, denied ones too, so their writers
// find them, a void finds its entry, and an entry appended twice counts once. Entries up to the
// floor become sums by time.
//
// An increment always counts, whatever its time. Appended a second time after a rewrite, with a
// time up to the floor, it counts twice.
//
// # Rules
//
// The log holds the limits that judge it, with the revision of their rules. A process with newer
// rules rewrites the log, which judges all entries so far by the older limits. A process with older
// rules is held to both: [Verdict.Admitted] is never more than its own limits allow. A limit that
// newer rules add counts the events in the log, of which those up to the floor may have been
// rounded down to their second, and those before [Head.Since] are unknown.
//
// # Format
//
// A value is a header, sums, and entries. Numbers are unsigned varints where no size is given, and
// big-endian where one is. Times are milliseconds since 1970.
//
//	header   0xEC, version 1, 4 bytes: offset of the entries
//	         base, floor, since, coarse (times), revision, TTL (seconds), bytes of entries
//	         that the rewrite kept
//	         number of limits, and of each its window in milliseconds and its ceiling
//	sums     number of sums by second, and of each sum<<1|0 with cost 1, or sum<<1|1 and its
//	         cost, where sum is the distance from the one before it in seconds
//	         number of sums by millisecond, and these in the same way in milliseconds
//	         4 bytes: CRC-32C of all that precedes it
//	entries  1 byte: kind<<5 | pending<<4 | cost, with cost 0 for a long entry
//	         5 bytes: the lowest 40 bits of the time, which is within 17 years of base
//	         7 bytes: the identity
//	         in a long entry 4 bytes: the cost, 2 bytes: the count of hits, or of the hits that
//	         a void leaves
//	         2 bytes: the lower half of the CRC-32C of the entry
//
// The first sum by second begins at the second 0, the first by millisecond at the last sum by
// second. The kinds are 1 hit, 2 increment, 3 void, and what a rewrite makes of them: 4 settled (it
// counts), 5 former (it counts, by limits older than those of the log), 6 denied. A value of another
// version is [ErrVersion]: it must be left as it is. A torn entry, a foreign byte or a second header
// is [ErrCorrupt], and nothing of the value is used. A value cut between two entries is a valid
// older value.
package journal
