package eventlog

import (
	"fmt"
	"slices"

	"github.com/counterd/counterd/internal/eventlog/journal"
	"github.com/counterd/counterd/internal/limiter"
	"github.com/counterd/counterd/internal/limiter/engine"
)

// maxEntries is the most entries that are appended to a log that has little room: they take half its bound.
const maxEntries = 300

// A batch is the hits on one counter as entries of its log: equal hits that follow each other are one entry. The
// entries follow each other in the log.
type batch struct {
	engine  *Engine
	counter string
	adds    []limiter.Addition
	entries []entry
	keys    []journal.ID // of the entries
	places  []place      // of the hits
	data    []byte       // the encoded entries, and what comes before them
	time    int64        // when they are appended, in Unix milliseconds
	at      int64        // when they count: time, but for increments
	lease   []journal.Limit

	isFull      bool       // the log has no room for entries that are to be settled
	isFitted    bool       // hits without room are left out
	isTentative bool       // they may have room once hits before them are undone
	release     journal.ID // of the entry that the batch settles, or 0
	extends     bool       // the entry is one that the log has, with a later end

	// Set by a round trip.
	isAppended bool
	isDecided  bool
	cost       int64 // of the hits that count
}

// An entry is an entry, and the verdict of the log.
type entry struct {
	journal.Entry
	counts  int64 // hits that count
	admits  int64 // hits that the log admits, if the limits of the process do
	kept    int64 // hits that are not undone
	isAlone bool  // the entry has one hit, which may be settled
}

// A place is where a hit is.
type place struct {
	isLeftOut bool
	entry     int
	before    int64 // hits of the entry before this one
}

// begin begins without hits.
func (b *batch) begin(e *Engine, counter string, time int64) {
	b.engine, b.counter, b.time, b.at = e, counter, time, time
}

// clear keeps only memory.
func (b *batch) clear() {
	*b = batch{entries: b.entries[:0], keys: b.keys[:0], places: b.places[:0], data: b.data[:0]}
}

// take makes the hits entries, except for those that fits returns false for. If fits is nil, all are.
func (b *batch) take(adds []limiter.Addition, fits func(*limiter.Addition) bool) {
	b.adds, b.entries, b.places = adds, b.entries[:0], b.places[:0]
	for i := range adds {
		add := &adds[i]
		if fits != nil && !fits(add) {
			b.places = append(b.places, place{isLeftOut: true})
			continue
		}
		next := b.entryOf(add)
		last := len(b.entries) - 1
		if last < 0 || !b.entries[last].isMore(&next) {
			next.ID = b.engine.identity()
			b.entries = append(b.entries, next)
			last++
		}
		b.places = append(b.places, place{entry: last, before: b.entries[last].Count})
		b.entries[last].Count++
	}
}

// entryOf returns the entry of a hit, which counts none yet.
func (b *batch) entryOf(add *limiter.Addition) entry {
	e := entry{Entry: journal.Entry{Kind: journal.Hit, Pending: add.Shared || b.engine.replicated, Cost: add.Cost, Ends: add.Ends}}
	if add.Counts {
		e.Kind, e.Pending = journal.Increment, false
	}
	switch {
	case b.lease != nil:
		e.Ends = b.time // encode sets it
	case b.isFull && b.isOfHits():
		e.Ends = 0
	}
	e.isAlone = e.Ends != 0 || add.Wait != 0 && !b.isFull
	return e
}

// isMore reports whether another hit is the same as those of this entry.
func (e *entry) isMore(next *entry) bool {
	return e.Kind == next.Kind && e.Cost == next.Cost && e.Pending == next.Pending && !e.isAlone && !next.isAlone
}

// isOfHits reports whether the entries are new: they do not settle, or extend, one that the log has.
func (b *batch) isOfHits() bool { return b.release == 0 && !b.extends }

// reserves reports whether hits of the batch are new, and are to be settled.
func (b *batch) reserves() bool {
	return !b.extends && slices.ContainsFunc(b.entries, func(e entry) bool { return e.Ends != 0 && e.Kind == journal.Hit })
}

// ends returns until when the log must have the entries that count, or 0 if none is to be settled.
func (b *batch) ends() (latest int64) {
	for i := range b.entries {
		if e := &b.entries[i]; e.counts > 0 {
			latest = max(latest, e.Ends)
		}
	}
	return latest
}

// bound returns how large the log may become by the entries: increments leave room for hits.
func (b *batch) bound() int {
	if slices.ContainsFunc(b.entries, func(e entry) bool { return e.Kind != journal.Increment }) {
		return journal.MaxSize
	}
	return journal.MaxSize * 7 / 8
}

// postpone makes the entries those of a later time, at which their reservations end later as well.
func (b *batch) postpone(time int64) {
	if b.at == b.time {
		for i := range b.entries {
			if e := &b.entries[i]; e.Ends != 0 && b.lease == nil && b.isOfHits() {
				e.Ends += time - b.time
			}
		}
		b.at = time
	}
	b.time = time
}

// rename gives the entries new identities, and encodes them after what voids the old ones.
func (b *batch) rename(voids []byte) error {
	for i := range b.entries {
		if b.isOfHits() {
			b.entries[i].ID = b.engine.identity()
		}
	}
	return b.encode(voids)
}

// encode encodes the entries, which no log has yet, after other data.
func (b *batch) encode(before []byte) error {
	b.isAppended, b.isDecided, b.cost = false, false, 0
	b.keys, b.data = b.keys[:0], append(b.data[:0], before...)
	if b.release != 0 {
		b.data, _ = journal.AppendEntry(b.data, journal.Entry{Kind: journal.Void, ID: b.release, Time: b.time})
	}
	for i := range b.entries {
		e := &b.entries[i].Entry
		e.Time, e.Appended = b.at, 0
		if b.at != b.time {
			e.Appended = b.time
		}
		for j, limit := range b.lease {
			if leaves := limit.Leaves(b.at); j == 0 || leaves > e.Ends {
				e.Ends = leaves
			}
		}
		b.keys = append(b.keys, e.ID)
		var err error
		if b.data, err = journal.AppendEntry(b.data, *e); err != nil {
			return fmt.Errorf("%w: %w", engine.ErrStore, err)
		}
	}
	return nil
}

// decide takes in the verdicts of the log, if it has the entries. It decides hits that are not pending. The counts of
// the tally decide the others; the log says how many of them fit its limits, if these are of other rules.
func (b *batch) decide(content *journal.Log) {
	b.isDecided, b.cost = false, 0
	if len(b.entries) == 0 || !content.Verdict(0).Found {
		return
	}
	b.isDecided = true
	for i := range b.entries {
		e, v := &b.entries[i], content.Verdict(i)
		e.counts, e.admits = v.Counted, v.Counted
		if e.Pending && !content.IsOfReader() {
			e.admits = v.Admitted
		}
		b.cost += e.counts * e.Cost
	}
}

// admits reports whether the log admits the hit.
func (b *batch) admits(hit int) bool {
	p := b.places[hit]
	return !p.isLeftOut && p.before < b.entries[p.entry].admits
}

// reservation returns what a settlement needs to know of the hit, if it may be settled.
func (b *batch) reservation(hit int, head journal.Head) engine.Reserved {
	p := b.places[hit]
	if p.isLeftOut || !b.entries[p.entry].isAlone {
		return engine.Reserved{}
	}
	e := &b.entries[p.entry].Entry
	r := engine.Reserved{Counter: b.counter, ID: uint64(e.ID), Time: e.Time, Ends: e.Ends, Cost: e.Cost}
	if b.lease != nil {
		r.Ends, r.Lease = endOf(head, e), leaseBy(head, longestOf(b.lease))
	}
	return r
}

// appendVoids appends what voids the hits that are not kept, as far as they may count. If isKept is nil, none is.
func (b *batch) appendVoids(dst []byte, isKept func(hit int) bool) []byte {
	for i := range b.entries {
		b.entries[i].kept = 0
	}
	for i, p := range b.places {
		if !p.isLeftOut && isKept != nil && isKept(i) {
			b.entries[p.entry].kept++
		}
	}
	for i := range b.entries {
		e, counts := &b.entries[i], b.entries[i].counts
		if !b.isDecided {
			counts = e.Count
		}
		if e.kept < counts {
			dst, _ = journal.AppendEntry(dst, journal.Entry{Kind: journal.Void, ID: e.ID, Time: b.time, Count: e.kept})
		}
	}
	return dst
}
