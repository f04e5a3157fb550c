package store

import "slices"

// Op is one round trip for one counter: the writes in their order, each of them applied
// before the next, and then the reads. Its caller sets up what it asks for, and the store
// fills in what came of it. An op may be used again.
type Op struct {
	// Counter is the counter's ID, a string of arbitrary bytes.
	Counter string
	// Server names the one server to ask, of the replicas of the counter. Empty: all of them.
	Server string
	Writes []Write
	Reads  []Read
	// Versions asks for the versions of the items that are read.
	Versions bool

	// Receipt says which servers acknowledged which writes. Subtract and Hint need the receipt
	// of the adds that they follow; other writes set it.
	Receipt Receipt
	// Err is why the round trip failed, or nil. After a failure the results of the reads are of
	// no use. Of the writes that were not acknowledged any may have taken place, but none
	// before the one ahead of it. A store never sends a write twice.
	Err error
}

// Kind is what a write does.
type Kind uint8

// The kinds of writes. All writes of an op are of one kind.
const (
	// Add adds By to a count. It creates an item that is not there, to expire at the Unix
	// second Expires; one that is there keeps its own expiry. Result is the sum. Of several
	// replicas the largest result counts, and one replica that makes the whole round trip is
	// enough.
	Add Kind = iota + 1
	// Subtract rolls back an Add: it subtracts By, to zero at the least, on those servers that
	// acknowledged the Add, if the item is there. See Op.RollBack.
	Subtract
	// Hint repeats an Add, later, on those replicas that did not acknowledge it. Such a replica
	// may count By twice, but not lose it while this process lives. The op does not wait for
	// that. See Op.Hint.
	Hint
	// Delete removes an item from all replicas. It is an error if one of them does not
	// acknowledge it.
	Delete
	// Create writes By to expire at Expires, if the item is not there. Swap does if the item
	// has the Version. Result is 1 if they wrote, else 0. An op has one of them and names its
	// server.
	Create
	Swap
)

// Kinds is a set of kinds.
type Kinds uint32

// KindsOf returns the set of the kinds.
func KindsOf(kinds ...Kind) (set Kinds) {
	for _, k := range kinds {
		set |= 1 << k
	}
	return set
}

// Has reports whether the kind is in the set.
func (s Kinds) Has(k Kind) bool { return s>>k&1 != 0 }

// Write is one write to an item.
type Write struct {
	Kind    Kind
	Item    uint64 // its number among the items of the counter: see the function Item
	By      int64
	Expires int64  // Unix second
	Version uint64 // for Swap

	Result int64
}

// Read is one read of an item.
type Read struct {
	Item uint64

	Value   int64
	Version uint64 // changes with each change of the item; 0: the item is not there
}

// Kind returns the kind of the writes; 0: the op only reads.
func (op *Op) Kind() Kind {
	if len(op.Writes) == 0 {
		return 0
	}
	return op.Writes[0].Kind
}

// RollBack makes the op subtract by from the items of adds, where the receipt says that the
// add was acknowledged. It goes from the last to the first: an event that is in an item is in
// those before it, also while the op is under way.
func (op *Op) RollBack(counter string, adds []Write, receipt Receipt, by int64) {
	op.follow(Subtract, counter, adds, receipt, by)
	slices.Reverse(op.Writes)
}

// Hint makes the op a hint that by, at most what the adds added, stays of them.
func (op *Op) Hint(counter string, adds []Write, receipt Receipt, by int64) {
	op.follow(Hint, counter, adds, receipt, by)
}

func (op *Op) follow(kind Kind, counter string, adds []Write, receipt Receipt, by int64) {
	writes := append(op.Writes[:0], adds...)
	for i := range writes {
		writes[i].Kind, writes[i].By, writes[i].Result = kind, by, 0
	}
	*op = Op{Counter: counter, Writes: writes, Reads: op.Reads[:0], Receipt: receipt}
}
