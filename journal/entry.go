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
	maxCount = 1<<15 - 1
	maxID    = 1<<56 - 1

	shortCost = 15
	tailSize  = 2
	shortSize = 1 + 5 + 7 + tailSize
	longSize  = shortSize + 4 + 2
	lateSize  = longSize + 5
)

// An ID identifies an entry among the entries that processes may still look for. It has 56 bits.
type ID uint64

// NewID returns an ID from a number drawn at random by the process, and a number that the process
// counts up with each entry.
func NewID(process uint32, sequence uint64) ID {
	return ID(process)<<24 | ID(sequence&(1<<24-1))
}

// Entry is one entry of a log.
type Entry struct {
	Kind Kind
	// Pending marks a hit that its writer may still void, because another counter may deny it, or
	// because other replicas have another order. It counts in full until it is void.
	Pending bool
	ID      ID    // of a Void: of the entry that it cancels
	Time    int64 // milliseconds since 1970
	// Appended is when a late increment is appended, if that is another time; else 0. The entry
	// has its identity by that time.
	Appended int64
	Cost     int64 // of each hit, from 1; a Void has none
	Count    int64 // equal hits, from 1; of a Void: how many remain, from 0
}

// isPending reports whether the entry is a hit that its writer decides. Increments always count.
func (e *Entry) isPending() bool { return e.Pending && e.Kind != Increment }

// appended returns when the entry is appended, by its writer's clock.
func (e *Entry) appended() int64 {
	if e.Appended != 0 {
		return e.Appended
	}
	return e.Time
}

// AppendEntry appends the encoded entry to dst: what is to be appended to the value of a log.
func AppendEntry(dst []byte, e Entry) ([]byte, error) {
	if e.Kind == Void {
		e.Cost = 1
	}
	switch {
	case e.Kind < Hit || e.Kind > Void:
		return dst, fmt.Errorf("%w: kind %d", ErrOutOfRange, e.Kind)
	case e.ID > maxID:
		return dst, fmt.Errorf("%w: an identity of more than 56 bits", ErrOutOfRange)
	case e.Time < 0 || e.Time > maxTime:
		return dst, fmt.Errorf("%w: time %d", ErrOutOfRange, e.Time)
	case e.Appended < 0 || e.Appended > maxTime || e.Appended != 0 && e.Kind != Increment:
		return dst, fmt.Errorf("%w: appended at %d", ErrOutOfRange, e.Appended)
	case e.Cost < 1 || e.Cost > maxCost:
		return dst, fmt.Errorf("%w: cost %d", ErrOutOfRange, e.Cost)
	case e.Count < usualCount(e.Kind) || e.Count > maxCount:
		return dst, fmt.Errorf("%w: count %d", ErrOutOfRange, e.Count)
	}
	return encode(dst, e), nil
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
	return e.Cost > shortCost || e.Count != usualCount(e.Kind) || e.Appended != 0
}

func encode(dst []byte, e Entry) []byte {
	begin := len(dst)
	long := isLong(&e)
	tag := byte(e.Kind) << 5
	if e.Pending {
		tag |= 1 << 4
	}
	if !long {
		tag |= byte(e.Cost)
	}
	dst = appendTime(append(dst, tag), e.Time)
	dst = append(dst, byte(e.ID>>48), byte(e.ID>>40), byte(e.ID>>32))
	dst = binary.BigEndian.AppendUint32(dst, uint32(e.ID))
	if long {
		count := uint16(e.Count)
		if e.Appended != 0 {
			count |= isLate
		}
		dst = binary.BigEndian.AppendUint32(dst, uint32(e.Cost))
		dst = binary.BigEndian.AppendUint16(dst, count)
		if e.Appended != 0 {
			dst = appendTime(dst, e.Appended)
		}
	}
	return binary.BigEndian.AppendUint16(dst, uint16(checksum(dst[begin:])))
}

// isLate is beside the count of an entry that has the time when it was appended.
const isLate = 1 << 15

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
	e.Kind, e.Pending, e.Cost = Kind(data[0]>>5), data[0]&(1<<4) != 0, int64(data[0]&shortCost)
	size = shortSize
	if e.Count = usualCount(e.Kind); e.Cost == 0 {
		if size = longSize; len(data) < size {
			return 0
		}
		e.Cost = int64(binary.BigEndian.Uint32(data[13:]))
		count := int64(binary.BigEndian.Uint16(data[17:]))
		e.Count = count &^ isLate
		if count != e.Count {
			if size = lateSize; len(data) < size {
				return 0
			}
			if e.Appended = timeNear(data[19:], base); e.Appended == 0 || e.Kind != Increment && e.Kind != denied {
				return 0
			}
		}
	}
	e.Time = timeNear(data[1:], base)
	e.ID = ID(binary.BigEndian.Uint64(data[5:]) & maxID)
	sum := binary.BigEndian.Uint16(data[size-tailSize:])
	valid := e.Kind >= Hit && e.Kind <= denied && e.Cost > 0 && e.Count >= usualCount(e.Kind) && e.Time >= 0 && e.Time <= maxTime &&
		e.Appended >= 0 && e.Appended <= maxTime && sum == uint16(checksum(data[:size-tailSize]))
	if !valid {
		return 0
	}
	return size
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(data []byte) uint32 { return crc32.Checksum(data, castagnoli) }
