package eventlog

import (
	"fmt"
	"slices"
	"time"

	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/store"
)

// batch is the hits of a step as entries of a log: equal ones that follow one another are one
// entry. They are in the log one behind the other.
type batch struct {
	hits     []engine.Hit
	entries  []entry
	keys     []journal.ID // of the entries
	places   []place      // of the hits
	appended bool         // the log has them
	decided  bool         // how many of them count is known
	total    int64        // the cost of what counts
	time     int64        // milliseconds
	at       int64        // of the entries: time, but for increments
	pending  bool         // replicas may order the hits differently
	voids    trip

	identity func() journal.ID // for the next entry
	lease    []journal.Limit   // of leases: the windows in which they are
	full     bool              // the log has no room for entries that are to be settled
	release  journal.ID        // of the entry that the batch settles; 0: there is none
	extends  bool              // the batch is an entry that the log has, with a later end
	turns    time.Duration     // for which hits wait, at the most
}

// entry is an entry, and what the log says of it.
type entry struct {
	journal.Entry
	counts int64 // how many of its hits count
	admits int64 // how many of them the log admits, if the limits of the session do
	alone  bool  // it has one hit, which may be settled
}

// place is where a hit is.
type place struct {
	entry  int   // -1: the hit is left out
	before int64 // how many hits of its entry are before it
	behind int64 // the cost of what a hit that is left out was denied behind; -1: it was not denied
}

// begin begins without hits.
func (b *batch) begin(id string, time int64, e *Engine) {
	b.time, b.at, b.pending, b.identity = time, time, e.replicated, e.identity
	b.voids.op.Counter, b.voids.op.Data, b.voids.item = id, true, e.item
	b.lease, b.full, b.release, b.extends, b.turns = nil, false, 0, false, 0
}

func (b *batch) end() {
	b.clear()
	b.voids.op.Counter, b.identity, b.lease = "", nil, nil
}

func (b *batch) clear() {
	b.hits, b.entries, b.keys, b.places = nil, b.entries[:0], b.keys[:0], b.places[:0]
	b.appended, b.decided, b.total = false, false, 0
}

// take makes entries of the hits, but for some that are left out.
func (b *batch) take(hits []engine.Hit, leftOut func(hit int) (behind int64, out bool)) {
	b.clear()
	b.hits = hits
	for i, h := range hits {
		if behind, out := leftOut(i); out {
			b.places = append(b.places, place{entry: -1, behind: behind})
			continue
		}
		kind, pending := journal.Hit, h.Pending || b.pending
		if h.Counts {
			kind, pending = journal.Increment, false
		}
		one := journal.Entry{Kind: kind, Pending: pending, Cost: h.Cost, Ends: h.Ends}
		switch {
		case b.lease != nil:
			one.Ends = b.time // encode sets it
		case b.full:
			one.Ends = 0
		}
		next := entry{Entry: one, alone: one.Ends != 0 || h.Waits != 0 && !b.full}
		last := len(b.entries) - 1
		if last < 0 || !b.entries[last].isMore(&next) {
			last++
			b.entries = append(b.entries, next)
		}
		b.turns = max(b.turns, h.Waits)
		b.places = append(b.places, place{entry: last, before: b.entries[last].Count})
		b.entries[last].Count++
	}
	b.rename()
}

// isMore reports whether another entry of one hit is the same as the hits of this one.
func (e *entry) isMore(one *entry) bool {
	return e.Kind == one.Kind && e.Cost == one.Cost && e.Pending == one.Pending && !e.alone && !one.alone
}

// isOfAnother reports whether the batch settles, or extends, what the log has: it is appended as it is.
func (b *batch) isOfAnother() bool { return b.release != 0 || b.extends }

// reserves reports whether hits of the batch are new ones that are to be settled.
func (b *batch) reserves() bool {
	return !b.extends && slices.ContainsFunc(b.entries, func(e entry) bool { return e.Ends != 0 && e.Kind == journal.Hit })
}

// ends returns until when the log has to have the entries that count; 0: none is to be settled.
func (b *batch) ends() (latest int64) {
	for i := range b.entries {
		if e := &b.entries[i]; e.counts > 0 {
			latest = max(latest, e.Ends)
		}
	}
	return latest
}

// rename gives the entries new identities: they are to be appended once more, as others.
func (b *batch) rename() {
	b.keys, b.appended, b.decided, b.total = b.keys[:0], false, false, 0
	for i := range b.entries {
		b.entries[i].ID = b.identity()
		b.keys = append(b.keys, b.entries[i].ID)
	}
}

// postpone has reservations of hits end later by so many milliseconds, as the hits are later.
func (b *batch) postpone(by int64) {
	for i := range b.entries {
		if e := &b.entries[i]; e.Ends != 0 && b.lease == nil && !b.isOfAnother() {
			e.Ends += by
		}
	}
}

// bound returns how large the log may become by the entries: increments leave room for hits.
func (b *batch) bound() int {
	if slices.ContainsFunc(b.entries, func(e entry) bool { return e.Kind != journal.Increment }) {
		return journal.MaxSize
	}
	return journal.MaxSize * 7 / 8
}

// encode appends the entries to dst.
func (b *batch) encode(dst []byte) ([]byte, error) {
	if b.release != 0 {
		dst, _ = journal.AppendEntry(dst, journal.Entry{Kind: journal.Void, ID: b.release, Time: b.time})
	}
	for i := range b.entries {
		e := &b.entries[i].Entry
		if e.Time, e.Appended = b.at, 0; b.at != b.time {
			e.Appended = b.time
		}
		for j, limit := range b.lease {
			if leaves := limit.Leaves(b.at); j == 0 || leaves > e.Ends {
				e.Ends = leaves
			}
		}
		var err error
		if dst, err = journal.AppendEntry(dst, *e); err != nil {
			return dst, fmt.Errorf("%w: %w", engine.ErrStore, err)
		}
	}
	return dst, nil
}

// decide notes what the log says of the entries. It decides hits that are not pending. The others
// are the session's to decide, by what is ahead of the batch; by limits of other rules than its own
// the log says how many of them fit.
func (b *batch) decide(log *journal.Log, others bool) {
	b.decided, b.total = true, 0
	for i := range b.entries {
		e, v := &b.entries[i], log.Verdict(i)
		e.counts, e.admits = v.Counted, v.Counted
		if e.Pending && others {
			e.admits = v.Admitted
		}
		b.total += e.counts * e.Cost
	}
	for i, p := range b.places {
		if p.entry >= 0 && b.entries[p.entry].alone {
			b.hits[i].Reserved = b.reserved(&b.entries[p.entry].Entry, log.Head())
		}
	}
}

// reserved returns what a Settle needs to know of an entry.
func (b *batch) reserved(e *journal.Entry, head journal.Head) engine.Reserved {
	r := engine.Reserved{Counter: b.voids.op.Counter, ID: uint64(e.ID), Time: e.Time, Ends: e.Ends, Cost: e.Cost}
	if b.lease != nil {
		own := int64(0)
		for _, limit := range b.lease {
			own = max(own, limit.Window)
		}
		r.Ends, r.Lease = endOf(head, e), leaseBy(head, time.Duration(own)*time.Millisecond)
	}
	return r
}

// endOf returns until when a log counts a lease: until it ends, or for as long as the limits in force have it.
func endOf(head journal.Head, e *journal.Entry) int64 {
	ends := e.Ends
	for _, limit := range head.Limits {
		ends = min(ends, limit.Leaves(e.Time))
	}
	return ends
}

// leaseBy returns how long a lease is by the limits in force; if there are none, or all are in shadow, it is
// as long as it was.
func leaseBy(head journal.Head, was time.Duration) time.Duration {
	if len(head.Limits) == 0 {
		return was
	}
	shortest := head.Limits[0].Window
	for _, limit := range head.Limits {
		shortest = min(shortest, limit.Window)
	}
	return time.Duration(shortest) * time.Millisecond
}

// admits reports whether the log admits the hit.
func (b *batch) admits(hit int) bool {
	p := b.places[hit]
	return p.entry >= 0 && p.before < b.entries[p.entry].admits
}

// isDenied reports whether there are hits that the log does not admit.
func (b *batch) isDenied() bool {
	return slices.ContainsFunc(b.entries, func(e entry) bool { return e.admits < e.Count })
}

// appendVoids appends what leaves so many hits of each entry, where the log may count more.
func (b *batch) appendVoids(dst []byte, stays func(entry int) int64) []byte {
	for i := range b.entries {
		e := &b.entries[i]
		counts := e.counts
		if !b.decided {
			counts = e.Count
		}
		if left := stays(i); left < counts {
			dst, _ = journal.AppendEntry(dst, journal.Entry{Kind: journal.Void, ID: e.ID, Time: b.time, Count: left})
		}
	}
	return dst
}

// stays returns how many hits of an entry stay.
func (b *batch) stays(entry int) (hits int64) {
	for i, p := range b.places {
		if p.entry == entry && b.hits[i].Stays {
			hits++
		}
	}
	return hits
}

// RollBack returns what voids the entries of hits that do not stay.
func (b *batch) RollBack() []*store.Op {
	if !b.appended {
		return nil
	}
	data := b.appendVoids(nil, b.stays)
	if len(data) == 0 {
		return nil
	}
	b.voids.clear()
	b.voids.write(store.Write{Kind: store.Append, Data: data})
	return b.voids.all()
}

// Hint returns nothing: what a replica has missed, the next session on the counter appends to it.
func (b *batch) Hint() []*store.Op { return nil }
