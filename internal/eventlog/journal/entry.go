package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

var (
	// ErrCorrupt says that a value is no journal, or a damaged one. Its counts are lost.
	ErrCorrupt = errors.New("journal: the value is damaged or not a journal: delete it to start anew")
	// ErrVersion says that a newer release wrote the value, which must be left as it is.
	ErrVersion = errors.New("journal: a newer release wrote the value: update this process")
	// ErrTooLarge says that a value, or what a batch adds to it at once, exceeds its largest size.
	ErrTooLarge = errors.New("journal: too many entries for one log: make batches smaller, or use sliding-window for this limit")
	// ErrOutOfRange says that a number does not fit the format.
	ErrOutOfRange = errors.New("journal: out of range")
)

// A Kind says what an entry does.
type Kind uint8

const (
	// Hit counts if its log admits it, or if it is pending.
	Hit Kind = iota + 1
	// Increment always counts.
	Increment
	// Void leaves the first Count hits of the entry with its identity, and cancels the others,
	// wherever in the log that entry is.
	Void
	// settled, former and denied are hits and increments with the verdict that a rewrite made
	// final: former ones count by limits older than those of the log.
	settled
	former
	denied
)

const (
	maxTime  = 1<<47 - 1
	maxCost  = 1<<32 - 1
	maxCount = 1<<14 - 1
	maxID    = 1<<56 - 1

	shortCost = 15
	tailSize  = 2
	shortSize = 1 + 5 + 7 + tailSize
	longSize  = shortSize + 4 + 2
	timeSize  = timeBits / 8 // of each further time of a long entry
)

// Sizes of encoded entries, for those who compute how large logs become.
const (
	EntrySize      = shortSize
	TimedEntrySize = longSize + timeSize // late, or with an end
)

// An ID identifies an entry among the entries that processes may still look for. It has 56 bits.
type ID uint64

// NewID returns an ID from 31 bits of a number drawn at random by the process, and the lowest bits of a number
// that the process counts up with each entry.
func NewID(process uint32, sequence uint64) ID {
	return (ID(process)<<SequenceBits | ID(sequence&(1<<SequenceBits-1))) &^ settlement
}

// Entry is one entry of a log.
type Entry struct {
	Kind Kind
	// Pending marks a hit that its writer may still void, because another counter may deny it, or
	// because other replicas have another order. It counts in full until it is void.
	Pending bool
	ID      ID    // of a Void: of the entry that it cancels
	Time    int64 // milliseconds since 1970
	// Appended is when a late entry is appended, if that is another time; else 0. The entry has its
	// identity by that time. No Void is late.
	Appended int64
	// Ends is when the lease or the reservation of the entry ends, or when it was void; 0: it has none.
	// The entry keeps its identity until then. Appended again with a later end, and time, it has these, at its
	// place: a lease is extended.
	Ends  int64
	Cost  int64 // of each hit, from 1, or from 0 if an Increment has an end; a Void has none
	Count int64 // equal hits, from 1; of a Void: how many remain, from 0
}

// settlement marks the identities of settlements.
const settlement ID = 1 << 55

// Settlement returns the identity of the increment that settles the entry of this one: whichever
// process settles it, that is one entry, of which the first in the log counts.
func (id ID) Settlement() ID { return id | settlement }

// isPending reports whether the entry is a hit that its writer decides. Increments always count.
func (e *Entry) isPending() bool { return e.Pending && e.Kind != Increment }

// appended returns when the entry is appended, by its writer's clock.
func (e *Entry) appended() int64 {
	if e.Appended != 0 {
		return e.Appended
	}
	return e.Time
}

// held returns until when the entry keeps its identity: a log with a later floor has it in its sums.
func (e *Entry) held() int64 { return max(e.appended(), e.Ends) }

// settles reports whether the entry is a settlement.
func (e *Entry) settles() bool { return e.ID&settlement != 0 && e.Ends != 0 }

// isExtendedBy reports whether the same entry, appended again, has it count for longer: see [Entry.Ends].
func (e *Entry) isExtendedBy(again *Entry) bool {
	return e.Ends != 0 && !e.settles() && again.Ends != 0 && (again.Time > e.Time || again.Ends > e.Ends)
}

// extended returns the entry with the later time and end of both, as it was appended first.
func (e *Entry) extended(again *Entry) Entry {
	longer, first := *e, min(e.appended(), again.appended())
	longer.Time, longer.Ends, longer.Appended = max(e.Time, again.Time), max(e.Ends, again.Ends), 0
	if first != longer.Time {
		longer.Appended = first
	}
	return longer
}

// AppendEntry appends the encoded entry to dst: what is to be appended to the value of a log.
func AppendEntry(dst []byte, e Entry) ([]byte, error) {
	if e.Kind == Void {
		e.Cost, e.Pending = 1, false
	}
	switch {
	case e.Kind < Hit || e.Kind > Void:
		return dst, fmt.Errorf("%w: kind %d", ErrOutOfRange, e.Kind)
	case e.ID > maxID:
		return dst, fmt.Errorf("%w: an identity of more than 56 bits", ErrOutOfRange)
	case e.Time < 0 || e.Time > maxTime:
		return dst, fmt.Errorf("%w: time %d", ErrOutOfRange, e.Time)
	case e.Appended < 0 || e.Appended > maxTime || e.Appended != 0 && e.Kind == Void:
		return dst, fmt.Errorf("%w: appended at %d", ErrOutOfRange, e.Appended)
	case e.Ends < 0 || e.Ends > maxTime || e.Ends != 0 && e.Kind == Void:
		return dst, fmt.Errorf("%w: ends at %d", ErrOutOfRange, e.Ends)
	case e.Cost < e.leastCost() || e.Cost > maxCost:
		return dst, fmt.Errorf("%w: cost %d", ErrOutOfRange, e.Cost)
	case e.Count < usualCount(e.Kind) || e.Count > maxCount:
		return dst, fmt.Errorf("%w: count %d", ErrOutOfRange, e.Count)
	}
	return encode(dst, e), nil
}

// leastCost is the least cost of a hit of the entry: the record of a reservation that was settled may
// have none.
func (e *Entry) leastCost() int64 {
	if e.Kind == denied || e.Kind == Increment && e.Ends != 0 {
		return 0
	}
	return 1
}

// usualCount is the count of short entries.
func usualCount(k Kind) int64 {
	if k == Void {
		return 0
	}
	return 1
}

// isLong reports whether the entry has more than its kind, its time and a small cost.
func isLong(e *Entry) bool {
	return e.Cost == 0 || e.Cost > shortCost || e.Count != usualCount(e.Kind) || e.Appended != 0 || e.Ends != 0
}

// tagOf returns the first byte of an entry.
func tagOf(e *Entry, long bool) byte {
	tag := byte(e.Kind) << 5
	if e.Pending {
		tag |= 1 << 4
	}
	if !long {
		tag |= byte(e.Cost)
	}
	return tag
}

// readTag returns the entry with what its first byte says.
func readTag(tag byte) Entry {
	e := Entry{Kind: Kind(tag >> 5), Cost: int64(tag & shortCost)}
	e.Pending, e.Count = tag&(1<<4) != 0, usualCount(e.Kind)
	return e
}

// isValid reports whether a decoded entry is one that encode writes.
func (e *Entry) isValid() bool {
	in := func(time int64) bool { return time >= 0 && time <= maxTime }
	return e.Kind >= Hit && e.Kind <= denied && e.Cost >= e.leastCost() && e.Count >= usualCount(e.Kind) &&
		in(e.Time) && in(e.Appended) && in(e.Ends) && (e.Kind != Void || e.Appended == 0 && e.Ends == 0)
}

func encode(dst []byte, e Entry) []byte {
	begin := len(dst)
	long := isLong(&e)
	dst = appendTime(append(dst, tagOf(&e, long)), e.Time)
	dst = append(dst, byte(e.ID>>48), byte(e.ID>>40), byte(e.ID>>32))
	dst = binary.BigEndian.AppendUint32(dst, uint32(e.ID))
	if long {
		count := uint16(e.Count)
		if e.Appended != 0 {
			count |= isLate
		}
		if e.Ends != 0 {
			count |= hasEnd
		}
		dst = binary.BigEndian.AppendUint32(dst, uint32(e.Cost))
		dst = binary.BigEndian.AppendUint16(dst, count)
		if e.Appended != 0 {
			dst = appendTime(dst, e.Appended)
		}
		if e.Ends != 0 {
			dst = appendTime(dst, e.Ends)
		}
	}
	return binary.BigEndian.AppendUint16(dst, uint16(checksum(dst[begin:])))
}

// isLate is beside the count of an entry that has the time when it was appended, hasEnd beside that of
// one that has an end.
const (
	isLate = 1 << 15
	hasEnd = 1 << 14
)

// timeBits is how many bits of a time an entry has.
const timeBits = 40

func appendTime(dst []byte, time int64) []byte {
	return binary.BigEndian.AppendUint32(append(dst, byte(time>>32)), uint32(time))
}

// timeNear returns the time near to base of which data has the lowest bits.
func timeNear(data []byte, base int64) int64 {
	low := int64(data[0])<<32 | int64(binary.BigEndian.Uint32(data[1:]))
	return base + (low-base)<<(64-timeBits)>>(64-timeBits)
}

// decode reads the first entry of data, and returns its size, or 0 if it is damaged.
func decode(e *Entry, data []byte, base int64) (size int) {
	if len(data) < shortSize {
		return 0
	}
	*e, size = readTag(data[0]), shortSize
	if e.Cost == 0 {
		if size = decodeLong(e, data, base); size == 0 {
			return 0
		}
	}
	e.Time = timeNear(data[1:], base)
	e.ID = ID(binary.BigEndian.Uint64(data[5:]) & maxID)
	if !e.isValid() || binary.BigEndian.Uint16(data[size-tailSize:]) != uint16(checksum(data[:size-tailSize])) {
		return 0
	}
	return size
}

// decodeLong reads what only a long entry has, and returns its size, or 0 if it is damaged.
func decodeLong(e *Entry, data []byte, base int64) (size int) {
	if size = longSize; len(data) < size {
		return 0
	}
	e.Cost = int64(binary.BigEndian.Uint32(data[13:]))
	count := int64(binary.BigEndian.Uint16(data[17:]))
	e.Count = count & maxCount
	for _, further := range []struct {
		flag int64
		time *int64
	}{{isLate, &e.Appended}, {hasEnd, &e.Ends}} {
		if count&further.flag == 0 {
			continue
		}
		at := size - tailSize
		if size += timeSize; len(data) < size {
			return 0
		}
		if *further.time = timeNear(data[at:], base); *further.time == 0 {
			return 0
		}
	}
	return size
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(data []byte) uint32 { return crc32.Checksum(data, castagnoli) }
