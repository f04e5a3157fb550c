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
// # Token buckets
//
// A limit with a rate is a token bucket: it holds as many tokens as its ceiling, its burst, and a hit takes
// as many as it costs. What it lacks is its level: what was taken, less what the rate returned since, to
// the millisecond and without rounding. It is the theoretical arrival time of GCRA, as a distance. Entries
// take tokens in the order of the log, each at its time, or at the latest time before it. A void is as if its
// entry had never been. Increments take tokens that the bucket does not have.
//
// So of the admitted hits of any interval, the last in the log found that all others had raised the level, at
// times within the interval: together they took no more than the burst and what the rate returned in it.
// That holds for any order of the entries, so a rewrite and a union may change it.
//
// A rewrite keeps the level at its floor, and of entries up to the floor nothing else. It never lowers the level behind
// all entries, so turns of a leaky bucket stay as far apart as the rate asks for. A bucket keeps its
// level while its rate stays, whatever its burst. One that newer rules add begins with the events in the log.
// Of replicas the highest level counts.
//
// # Rewrites
//
// [Log.AppendRewrite] returns a shorter value with the same verdicts, to be swapped in by
// compare-and-swap on the value that was read. It makes every verdict of the log final; pending
// hits stay pending. It drops what no later hit can count. Its floor is a time: entries that were
// appended after it keep their identity, denied ones too, so their writers find them, a void finds
// its entry, and an entry appended twice counts once. The other entries become sums by time. What
// is appended to a log later and names an earlier time than its floor is stale: it may have been
// counted, and counts nothing.
//
// A late entry names two times: it counts at one of them, and has its identity by the other,
// when it was appended.
//
// # Leases and reservations
//
// An entry with an end keeps its identity until then, so that a void finds it: it releases a lease, or
// returns what was reserved. Of any floor such an entry is a record or in the sums, on each replica
// alike. An increment with an identity of its own ([ID.Settlement]) has what was truly used. What is void
// keeps its identity while it is young once more, since a replica that has the entry without its void brings
// it back, until its end. Where there is no other one ([Rewrite.Alone]), a rewrite drops both at once. An entry
// that is appended again with a later time and end has these from there on, at its place: so a lease is
// extended, and what follows it still counts it.
//
// A token bucket lacks what truly was used, at the time of its hit. Once the floor has passed a hit that is still
// to be settled, the level at the floor has it as it was reserved. A settlement then lowers the level at the floor
// by what was not used, but by no more than is left of the reserved cost if all that the rate returned since the
// hit is of it. That is safe: without the unused part the bucket would lack no more. It would only if tokens had
// returned for nothing, to a full bucket, and that it was not before the used ones had returned.
//
// # Replicas
//
// Replicas of a counter order the entries differently, so all hits are pending there, and a log is
// a set of entries that only grows. [Merge] returns the union, and what each replica lacks of it.
// Of one entry the least counts, since a void or a rewrite may have reached one replica only.
//
// The floors of the replicas may differ. Up to the highest, entries are compared as sums: of each
// second, or hour where a log is coarse, the largest sum of a replica counts. That is exact if
// replicas are rewritten with what all of them held. If one of them was rewritten while another one
// could not be read, and both lack entries of the other in the same second, the fewer ones are lost.
//
// A reset does not delete the logs: beside it, a reader may find one replica with the log and another
// one without, as if that had lost it. It puts an empty log in the place of each, which says until
// when nothing counts on any replica ([Head.Reset]). Only sums stay of a replica that was rewritten
// later by a process that could not read the reset. A rewrite drops the time of a reset once what was
// before it has left all windows.
//
// The merged value has the entries that precede those of the reader on any replica ahead of them.
// A rewrite puts the merged entries in one order, which is not that of each replica. So all that it
// kept counts ahead of an entry whose reader finds it there. So the proof holds if every hit reaches
// one replica that loses nothing: in its order, the last admitted hit of a window was decided with
// all others counted.
//
// # Rules
//
// The log holds the limits that judge it, with the revision of their rules. A process with newer
// rules rewrites the log, which judges all entries so far by the older limits. A process with older
// rules is held to both: [Verdict.Admitted] is never more than its own limits allow. A limit that
// newer rules add counts the events in the log, of which those up to the floor may have been
// rounded up to the end of their second, and those before [Head.Since] are unknown. Rules with the
// same limits are the same, whatever their revisions: see [Question.Newest].
//
// # Format
//
// A value is a header, sums, and entries. Numbers are unsigned varints where no size is given, and
// big-endian where one is. Times are milliseconds since 1970.
//
//	header   0xEC, version 1, the number of bytes that follow up to the end of the CRC
//	         parts: number of limits<<3, and whether there is 1 coarse, 2 reset, 4 bytes that the
//	         rewrite kept
//	         base (seconds), and signed varints: base - floor, and in seconds base - since, until - base
//	         TTL (seconds), 8 bytes: revision
//	         coarse and reset (times), bytes of entries that the rewrite kept
//	         of each limit its length<<3 and 1 in seconds, not milliseconds, 2 a token bucket, 4 in
//	         shadow; its ceiling; of a token bucket its rate, its level at the floor, and 0, or 1 and how
//	         many seconds before base the time is after which that knows all events
//	kept     1 byte as of other entries; signed varints: its time less that of the one before; the place of its
//	         process among those before it, or their number and 4 bytes: that process; a signed varint: its
//	         sequence less that of the one before of the process; of a long entry its cost, its count<<2 and
//	         1 late, 2 with an end, and as signed varints these times less its own
//	sums     of each its distance to the one before<<2, and 1 with a cost, which follows; without, it is 1;
//	         2 in milliseconds, not in seconds: a sum by second is at the end of it
//	         4 bytes: CRC-32C of all that precedes it
//	entries  1 byte: kind<<5 | pending<<4 | cost, with cost 0 for a long entry
//	         5 bytes: the lowest 40 bits of the time, which is within 17 years of base
//	         7 bytes: the identity
//	         in a long entry 4 bytes: the cost, 2 bytes: late<<15 | ends<<14 | the count of
//	         hits, or of the hits that a void leaves
//	         in a late entry 5 bytes: the time when it was appended, like the other
//	         in an entry with an end 5 bytes: that time
//	         2 bytes: the lower half of the CRC-32C of the entry
//
// The first sum is at its distance to the time 0. The kinds are 1 hit, 2 increment, 3 void, and what a rewrite makes of them: 4 settled (it
// counts), 5 former (it counts, by limits older than those of the log), 6 denied. A value of another
// version is [ErrVersion]: it must be left as it is. A torn entry, a foreign byte or a second header
// is [ErrCorrupt], and nothing of the value is used. A value cut between two entries is a valid
// older value.
//
// # Later versions
//
// Processes append to a log without reading it first. So a process of this version may append its
// entries, hits and increments and their voids, to a log of a later version, and then reads
// [ErrVersion]. A later version has to skip these entries or to understand them, wherever they are
// among its own: they are no damage. It can tell them apart by the kind, of which 0 and 7 are free.
// This version takes an entry of a free kind in its own log for damage. So a later version rewrites
// a log of this version under its own header before it appends entries of its own.
package journal
