package journal

import "encoding/binary"

// What is beside the count of a kept entry.
const (
	isKeptLate = 1 << iota
	hasKeptEnd
	furtherBits = iota
)

// SequenceBits are the bits of an ID that are a sequence of its process: see [NewID].
const SequenceBits = 24

// keptSize is about what an entry takes that a rewrite keeps, and leastKept what any takes at least.
const (
	keptSize  = 6
	leastKept = 4
)

// keeper encodes and decodes the entries that a rewrite keeps, each by what tells it from the ones before.
type keeper struct {
	time      int64
	processes []writer
}

// writer is a process that has written entries.
type writer struct{ process, sequence int64 }

// begin begins with entries near to a time.
func (k *keeper) begin(base int64) { k.time, k.processes = base, k.processes[:0] }

// appendAll appends entries near to a time to dst.
func (k *keeper) appendAll(dst []byte, base int64, entries []Entry) []byte {
	k.begin(base)
	for _, e := range entries {
		dst = k.append(dst, e)
	}
	return dst
}

// append appends an entry to dst.
func (k *keeper) append(dst []byte, e Entry) []byte {
	long := isLong(&e)
	dst = binary.AppendVarint(append(dst, tagOf(&e, long)), e.Time-k.time)
	k.time = e.Time
	process, i := int64(e.ID>>SequenceBits), 0
	for i < len(k.processes) && k.processes[i].process != process {
		i++
	}
	if dst = binary.AppendUvarint(dst, uint64(i)); i == len(k.processes) {
		dst = binary.BigEndian.AppendUint32(dst, uint32(process))
		k.processes = append(k.processes, writer{process: process})
	}
	sequence := int64(e.ID & (1<<SequenceBits - 1))
	dst = binary.AppendVarint(dst, sequence-k.processes[i].sequence)
	if k.processes[i].sequence = sequence; !long {
		return dst
	}
	further := uint64(0)
	if e.Appended != 0 {
		further |= isKeptLate
	}
	if e.Ends != 0 {
		further |= hasKeptEnd
	}
	dst = binary.AppendUvarint(dst, uint64(e.Cost))
	dst = binary.AppendUvarint(dst, uint64(e.Count)<<furtherBits|further)
	if e.Appended != 0 {
		dst = binary.AppendVarint(dst, e.Appended-e.Time)
	}
	if e.Ends != 0 {
		dst = binary.AppendVarint(dst, e.Ends-e.Time)
	}
	return dst
}

// next reads an entry.
func (k *keeper) next(c *cursor, e *Entry) {
	if c.at == len(c.data) {
		c.fail()
		return
	}
	*e = readTag(c.data[c.at])
	c.at++
	e.Time = c.near(k.time, 1)
	k.time = e.Time
	i := int(c.below(int64(len(k.processes))))
	if i == len(k.processes) {
		k.processes = append(k.processes, writer{process: int64(c.fixed(4))})
	}
	w := &k.processes[i]
	w.sequence = c.near(w.sequence, 1)
	c.bad = c.bad || w.sequence >= 1<<SequenceBits
	e.ID = ID(w.process<<SequenceBits | w.sequence)
	if e.Cost == 0 {
		e.Cost = c.below(maxCost)
		count := c.below(maxCount<<furtherBits | 1<<furtherBits - 1)
		if e.Count = count >> furtherBits; count&isKeptLate != 0 {
			e.Appended = c.near(e.Time, 1)
			c.bad = c.bad || e.Appended == 0
		}
		if count&hasKeptEnd != 0 {
			e.Ends = c.near(e.Time, 1)
			c.bad = c.bad || e.Ends == 0
		}
	}
	c.bad = c.bad || !e.isValid()
}
