package store

import (
	"fmt"
	"slices"
)

// Op is one round trip for one counter: the writes in their order, each of them applied
// before the next, and then the reads. Its caller sets up what it asks for, and the store
// fills in what came of it. An op may be used again.
type Op struct {
	// Counter is the counter's ID, a string of arbitrary bytes, or its alias.
	Counter string
	// Server names the one server to ask, of the replicas of the counter. Empty: all of them.
	Server string
	Writes []Write
	Reads  []Read
	// Versions asks for the versions of the items that are read.
	Versions bool
	// Data: the items hold bytes, not counts. Such an op has Appends and Creates, in any
	// order, and then reads; or one Swap or Put and nothing else. Subtract, Hint and Delete follow no
	// Data: a Delete removes any item. See Check.
	Data bool

	// Replicas is what each replica made of an op with Data that names no server, in the
	// counter's order, if the store keeps several; empty: it keeps one. Each is an op with its
	// Server, Writes, Reads, Receipt and Err.
	Replicas []Op

	// Receipt says which servers acknowledged which writes. Subtract and Hint need the receipt
	// of the adds that they follow; other writes set it. If an op reads counts and writes nothing,
	// each of several replicas that answered has acknowledged 1.
	Receipt Receipt
	// Err is why the round trip failed, or nil. After a failure the results of the reads are of
	// no use. Of the writes that were not acknowledged any may have taken place, but none
	// before the one ahead of it. A store never sends a write twice.
	Err error
}

// Kind is what a write does.
type Kind uint8

// The kinds of writes. All writes of an op are of one kind, unless they are of Data.
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
	// Create writes By, or Data, to expire at Expires, if the item is not there. Swap does if
	// the item has the Version. Result is 1 if they wrote, else 0. An op of counts has one of
	// them and names its server. With several replicas, a Swap of Data names its server, too:
	// versions are a replica's own. A Swap goes to the server process that the Version was read
	// from, else it writes nothing.
	Create
	Swap
	// Append writes Data at the end of an item of bytes, which keeps its expiry. Result is 1 if
	// it wrote; else 0: the item is not there, or would be larger than the store takes. Of
	// several replicas each gets Appends and Creates. One that makes the round trip is enough;
	// then the others have until half of the time is over.
	Append
	// Put writes Data, to expire at Expires, whatever the item is. Result is 1. With several
	// replicas it names its server.
	Put
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
	Data    []byte // of an op with Data, which does not change them

	Result int64
}

// Read is one read of an item.
type Read struct {
	Item uint64

	Value int64
	// Version is 0 if the item is not there: see SameVersion. After ErrNoData it is that of the item which holds no bytes
	// of counterd, if the store has versions of such items, so that a Swap replaces it.
	Version uint64
	// Data is what the item holds, of an op with Data. The store uses its memory again with
	// the op.
	Data []byte
}

// Check returns an error that wraps ErrUnsupported if the op has Data and is none of the ops
// that may, or one of its items is a bucket: a bucket of bytes would be lost to its counter. It
// does so, too, if the op appends and has no Data.
func Check(op *Op) error {
	if !op.Data {
		if op.Kind() == Append {
			return errNoData
		}
		return nil
	}
	for i := range op.Writes {
		w := &op.Writes[i]
		switch {
		case ItemLevel(w.Item) < OtherLevels:
			return errBucket
		case (w.Kind == Swap || w.Kind == Put) && len(op.Writes)+len(op.Reads) == 1, w.Kind == Append, w.Kind == Create:
		default:
			return fmt.Errorf("%w: a write of kind %d in an op with data", ErrUnsupported, w.Kind)
		}
	}
	for i := range op.Reads {
		if ItemLevel(op.Reads[i].Item) < OtherLevels {
			return errBucket
		}
	}
	return nil
}

var errNoData = fmt.Errorf("%w: a write of kind Append in an op without data: set Op.Data", ErrUnsupported)

var errBucket = fmt.Errorf("%w: bytes in a bucket: their level is OtherLevels at the least", ErrUnsupported)

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

// An item's number has its level in the upper LevelBits of ItemBits, and what tells it from
// others of that level below them. Engines share the levels: those from OtherLevels on are for
// items that are no buckets, such as a counter's journal.
const (
	ItemBits    = 40
	LevelBits   = 5
	NumberBits  = ItemBits - LevelBits
	OtherLevels = 16
)

// Item returns the number of an item: its level, and its number within the level, of which
// the lower NumberBits count.
func Item(level uint8, number int64) uint64 {
	return uint64(level)<<NumberBits | uint64(number)&(1<<NumberBits-1)
}

// A version has in its lower VersionBits the number that the server gave to the change of the
// item. Above them it has what tells the server process, and the connection, from others: a
// server that was started again gives the same numbers to other changes.
const VersionBits = 44

// Version returns the version of that change, read on the connection of that number.
func Version(conn uint32, change uint64) uint64 {
	return uint64(conn)<<VersionBits | change&(1<<VersionBits-1)
}

// SameVersion reports whether the item has not changed between two reads from one server
// process: the connections of the reads do not matter.
func SameVersion(a, b uint64) bool { return (a^b)&(1<<VersionBits-1) == 0 }

// ItemLevel returns the level of an item. ItemNumber returns its number within the level.
func ItemLevel(item uint64) uint8  { return uint8(item >> NumberBits) }
func ItemNumber(item uint64) int64 { return int64(item & (1<<NumberBits - 1)) }

// MaxReplicas is the most replicas that a counter can have.
const MaxReplicas = 5

// Receipt says how many writes of an op each replica acknowledged, from the first write on.
// The zero Receipt says that none did. It means something to the store that issued it alone.
type Receipt struct {
	List         uint32              // the version of the list of servers that the replicas are of
	Acknowledged [MaxReplicas]uint32 // by the replica's place among those of the counter
}

// Acknowledged returns the receipt of a store with one server.
func Acknowledged(writes int) Receipt {
	return Receipt{Acknowledged: [MaxReplicas]uint32{uint32(writes)}}
}

// None reports whether no replica acknowledged a write.
func (r Receipt) None() bool { return r.Acknowledged == [MaxReplicas]uint32{} }

// On returns how many writes the i-th replica acknowledged.
func (r Receipt) On(i int) int { return int(r.Acknowledged[i]) }
