package journal

import (
	"iter"
	"math/bits"
	"slices"
)

// records are the entries of a log with an identity, in their order.
type records struct {
	head *Head
	list []record
	kept int // how many of them a rewrite kept; all, while these are folded

	keys  []ID    // of the question
	table []int32 // by identity: 1 + index of a record, or -1 - index of a key not met yet
	shift int
}

// record is an entry, and how many of its hits count.
type record struct {
	Entry
	counts int64
	key    int // of the question, or -1
	voided int64
}

// held returns until when a rewrite keeps the identity of the entry. One that does not count needs no
// later time than its writer, and its voids, do, and what may have it without them.
func (r *record) held() int64 {
	if r.counts == 0 && r.Kind != denied {
		return max(r.appended(), r.voided)
	}
	return r.Entry.held()
}

// isKept reports whether a rewrite with that floor keeps the entry. Alone, none that is void is needed, but
// a void whose entry may come yet.
func (r *record) isKept(floor int64, alone bool) bool {
	return r.held() > floor && (r.counts > 0 || r.Kind == Void || r.voided == 0 || !alone)
}

// begin makes room for so many entries, and for keys.
func (rs *records) begin(head *Head, keys []ID, entries int) {
	rs.head, rs.keys = head, keys
	rs.list = slices.Grow(rs.list, entries+1)
	exponent := bits.Len(uint(4 * (entries + len(keys) + 1)))
	rs.shift = 64 - exponent
	rs.table = slices.Grow(rs.table[:0], 1<<exponent)[:1<<exponent]
	clear(rs.table)
	for i, key := range keys {
		*rs.find(key) = int32(-1 - i)
	}
}

// next returns the entry that is to be folded next.
func (rs *records) next() *Entry {
	rs.list = append(rs.list, record{})
	return &rs.list[len(rs.list)-1].Entry
}

// find returns where in the table the identity is or belongs.
func (rs *records) find(id ID) *int32 {
	mask := len(rs.table) - 1
	for i := int(uint64(id) * 0x9E3779B97F4A7C15 >> rs.shift); ; i++ {
		place := &rs.table[i&mask]
		if n := int(*place); n == 0 || n > 0 && rs.list[n-1].ID == id || n < 0 && rs.keys[-1-n] == id {
			return place
		}
	}
}

// place returns which of the records has the identity, or -1.
func (rs *records) place(id ID) int {
	if rs.head == nil {
		return -1
	}
	return max(int(*rs.find(id)), 0) - 1
}

// reservation returns the place of the hit that the n-th record settles, or -1: it settles none, or that has
// been forgotten, or has not come, or counts as well: a replica has brought it back.
func (rs *records) reservation(n int) int {
	r := &rs.list[n]
	if !r.settles() {
		return -1
	}
	i := rs.place(r.ID &^ settlement)
	if i >= 0 && (rs.list[i].Kind == Void || rs.list[i].counts > 0 || rs.isPassed(&rs.list[i])) {
		return -1
	}
	return i
}

// settlementOf returns the place of what settles the n-th record, or -1: it counts itself, or is none.
func (rs *records) settlementOf(n int) int {
	r := &rs.list[n]
	if r.counts > 0 || r.Kind == Void || r.settles() {
		return -1
	}
	return rs.place(r.ID.Settlement())
}

// counting returns the place from which on the n-th record counts: its own, but a settlement counts from that of
// its hit on, which counted until then.
func (rs *records) counting(n int) int {
	if i := rs.reservation(n); i >= 0 && i < n {
		return i
	}
	return n
}

// order yields the places of the records that count from the first on, in their order.
func (rs *records) order(first int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for n := first; n < len(rs.list); n++ {
			if i := rs.settlementOf(n); i > n && rs.counting(i) == n && !yield(i) {
				return
			}
			if rs.counting(n) == n && !yield(n) {
				return
			}
		}
	}
}

// isPassed reports whether the record counts nothing, and did so when the floor passed it.
func (rs *records) isPassed(r *record) bool {
	return r.Kind == denied && r.appended() <= rs.head.Floor
}

// isOpen reports whether the entry may still be settled after the floor, which has passed it.
func (e *Entry) isOpen(floor int64) bool {
	return e.Ends > floor && e.appended() <= floor && !e.settles() && e.Kind != Void && e.Kind != denied
}

// isPassedOpen reports whether the level at the floor has the n-th record as it was reserved: it was not settled when
// the floor passed it.
func (rs *records) isPassedOpen(n int) bool { return n < rs.kept && rs.list[n].isOpen(rs.head.Floor) }

// used returns what the n-th record truly cost, as far as that is known.
func (rs *records) used(n int) int64 {
	r := &rs.list[n]
	if i := rs.settlementOf(n); i >= 0 && !rs.isPassed(r) {
		r = &rs.list[i]
	}
	return r.counts * r.Cost
}
