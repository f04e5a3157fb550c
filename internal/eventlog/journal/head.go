package journal

import (
	"encoding/binary"
	"fmt"
	"slices"
)

const (
	magic   = 0xEC
	version = 1
	// MaxSize is the size that a value should not exceed.
	MaxSize = 16 << 10

	checkSize = 4       // of the header's CRC
	maxSum    = 1 << 40 // the largest cost in one sum
)

// Head is what a log says of itself.
type Head struct {
	// Revision orders the rules: the limits are those of the highest.
	Revision uint64
	// Limits judge the hits. The slice is valid until the next Read.
	Limits []Limit
	// TTL is the time to live of the item, in seconds, that a reader must not shorten.
	TTL int64
	// Until is the time until which the item lives at least. Creation and rewrites set both, so
	// a process that needs the log for longer rewrites it.
	Until int64
	// Since is the time after which the log knows all events.
	Since int64
	// Floor is the time up to which hits are stale, and denied.
	Floor int64
	// Coarse is the time up to which events have been moved to the end of their minute or hour,
	// because the log was too large, or 0.
	Coarse int64
	// Reset is a time: what was appended up to then counts nothing, on any replica. 0: nothing was
	// reset, as far as that matters yet.
	Reset int64

	base int64  // a time that times of entries are near to
	kept []byte // the entries that the rewrite kept, encoded
}

// Outdated reports whether the limits are of older rules than revision, so that the log is to be
// rewritten under the new ones.
func (h Head) Outdated(revision uint64) bool { return h.Revision < revision }

// isStale reports whether an entry that is not of a rewrite comes too late: what it adds may have been
// counted before. A hit that the log decides is decided by what it holds of its window.
func (h *Head) isStale(e *Entry) bool {
	switch {
	case e.appended() <= h.Reset:
		return true
	case e.Kind >= settled:
		return false
	case e.Kind == Hit && !e.Pending:
		return e.appended() <= h.Floor
	}
	return e.held() <= h.Floor
}

// AppendNew appends the value of an empty log to dst; now is the time in milliseconds. The floor is
// the time by which an item that expired until now may have held hits: the length of
// [Rewrite.Young] before now. It is never before a reset.
func AppendNew(dst []byte, head Head, now int64) ([]byte, error) {
	limits, err := enforced(nil, head.Limits)
	if err != nil {
		return dst, err
	}
	head.Limits, head.base, head.kept = limits, now-now%second, nil
	head.Floor = max(head.Floor, head.Reset, 0)
	for i := range limits {
		limits[i].since = limits[i].unknown(head.Since, head.Floor)
	}
	for _, n := range []int64{now, head.Floor, head.Since, head.Coarse, head.Reset, head.TTL, head.Until} {
		if n < 0 || n > maxTime {
			return dst, fmt.Errorf("%w: %d of %+v", ErrOutOfRange, n, head)
		}
	}
	return appendHead(dst, head, &timeline{}), nil
}

// HeadSize returns the size of a header that was written at now, in milliseconds, when token buckets had no token.
func HeadSize(head Head, now int64) int {
	head.base, head.Limits = now, slices.Clone(head.Limits)
	for i := range head.Limits {
		l := &head.Limits[i]
		l.level = l.Ceiling * l.Window * min(l.Rate, 1)
	}
	return len(appendHead(nil, head, &timeline{}))
}

// Parts that a header may have. Above these bits is the number of limits.
const (
	hasCoarse = 1 << iota
	hasReset
	hasKept
	partBits = iota
)

// Marks of a limit in a header. Above these bits is the length of its window.
const (
	inSeconds = 1 << iota
	isBucket
	isShadow
	markBits = iota
)

// appendHead appends the header and the sums.
func appendHead(dst []byte, h Head, sums *timeline) []byte {
	begin := len(dst)
	dst = append(dst, magic, version)
	parts, base := len(h.Limits)<<partBits, h.base/second
	for part, has := range [partBits]bool{h.Coarse > 0, h.Reset > 0, len(h.kept) > 0} {
		if has {
			parts |= 1 << part
		}
	}
	dst = binary.AppendUvarint(dst, uint64(parts))
	dst = binary.AppendUvarint(dst, uint64(base))
	dst = binary.AppendVarint(dst, h.base-h.Floor)
	dst = binary.AppendVarint(dst, base-h.Since/second)
	dst = binary.AppendVarint(dst, h.Until/second-base)
	dst = binary.AppendUvarint(dst, uint64(h.TTL))
	dst = binary.BigEndian.AppendUint64(dst, h.Revision)
	if h.Coarse > 0 {
		dst = binary.AppendUvarint(dst, uint64(h.Coarse))
	}
	if h.Reset > 0 {
		dst = binary.AppendUvarint(dst, uint64(h.Reset))
	}
	if len(h.kept) > 0 {
		dst = binary.AppendUvarint(dst, uint64(len(h.kept)))
		dst = append(dst, h.kept...)
	}
	for _, l := range h.Limits {
		dst = l.append(dst, base)
	}
	dst = appendSums(dst, sums)
	var space [binary.MaxVarintLen64]byte
	size := binary.AppendUvarint(space[:0], uint64(len(dst)-begin-2+checkSize))
	dst = slices.Insert(dst, begin+2, size...)
	return binary.BigEndian.AppendUint32(dst, checksum(dst[begin:]))
}

// append appends the limit of a header whose base is that second.
func (l Limit) append(dst []byte, base int64) []byte {
	window, marks := l.Window, uint64(0)
	if window%second == 0 {
		window, marks = window/second, inSeconds
	}
	if l.isBucket() {
		marks |= isBucket
	}
	if l.Shadow {
		marks |= isShadow
	}
	dst = binary.AppendUvarint(dst, uint64(window)<<markBits|marks)
	dst = binary.AppendUvarint(dst, uint64(l.Ceiling))
	if !l.isBucket() {
		return dst
	}
	dst = binary.AppendUvarint(dst, uint64(l.Rate))
	dst = binary.AppendUvarint(dst, uint64(l.level))
	if l.since == 0 {
		return append(dst, 0)
	}
	return binary.AppendUvarint(dst, uint64(max(base-l.since/second, 0)+1))
}

// limit reads a limit of a header.
func (c *cursor) limit(base int64) (l Limit) {
	window := c.below(maxTime << markBits)
	l.Window, l.Shadow, l.Ceiling = window>>markBits, window&isShadow != 0, c.below(maxCeiling)
	if window&inSeconds != 0 {
		l.Window = min(l.Window, maxTime) * second
	}
	if window&isBucket != 0 {
		l.Rate = c.below(maxRate)
		c.bad = c.bad || l.Rate == 0
		l.level = c.below(maxDebt * l.Rate)
		if before := c.below(base + 1); before > 0 {
			l.since = known(base - before + 1)
		}
	}
	c.bad = c.bad || !l.valid() || l.Shadow && !l.isBucket()
	return l
}

// known returns the time after which all events are known if some of a second are not; 0: all are.
func known(unknown int64) int64 {
	if unknown <= 0 {
		return 0
	}
	return unknown*second + second - 1
}

// Marks of a sum. Above these bits is its distance to the one before.
const (
	hasCost  = 1 << iota // else its cost is 1
	inMillis             // else in seconds: it is at the end of its second
	sumBits  = iota
)

// appendSums appends the sums, each at its distance to the one before.
func appendSums(dst []byte, sums *timeline) []byte {
	last := int64(0)
	for i, time := range sums.times {
		for cost := sums.upTo(i+1) - sums.upTo(i); cost > 0; {
			part := min(cost, maxSum)
			run := uint64(time-last)<<sumBits | inMillis
			if time == endOfSecond(time) {
				run = uint64(time/second-last/second) << sumBits
			}
			if part == 1 {
				dst = binary.AppendUvarint(dst, run)
			} else {
				dst = binary.AppendUvarint(dst, run|hasCost)
				dst = binary.AppendUvarint(dst, uint64(part))
			}
			cost, last = cost-part, time
		}
	}
	return dst
}

// cursor reads varints. After a damaged one it is at the end.
type cursor struct {
	data []byte
	at   int
	bad  bool
}

func (c *cursor) next() uint64 {
	if c.at < len(c.data) && c.data[c.at] < 0x80 { // most numbers: it saves a call
		c.at++
		return uint64(c.data[c.at-1])
	}
	n, size := binary.Uvarint(c.data[c.at:])
	if size <= 0 {
		return c.fail()
	}
	c.at += size
	return n
}

func (c *cursor) fail() uint64 {
	c.at, c.bad = len(c.data), true
	return 0
}

// below returns the next number, which must be at most bound.
func (c *cursor) below(bound int64) int64 {
	n := c.next()
	if n > uint64(bound) {
		n = c.fail()
	}
	return int64(n)
}

// above returns the next number, a time that is above 0.
func (c *cursor) above() int64 {
	n := c.below(maxTime)
	c.bad = c.bad || n == 0
	return n
}

// near returns a time from its distance to another one.
func (c *cursor) near(time, sign int64) int64 {
	n, size := binary.Varint(c.data[c.at:])
	if c.at += max(size, 0); size <= 0 || max(n, -n) > maxTime || time+sign*n < 0 || time+sign*n > maxTime {
		return int64(c.fail())
	}
	return time + sign*n
}

// fixed returns the next number of that many bytes.
func (c *cursor) fixed(size int) (n uint64) {
	if len(c.data)-c.at < size {
		return c.fail()
	}
	for _, b := range c.data[c.at : c.at+size] {
		n = n<<8 | uint64(b)
	}
	c.at += size
	return n
}

// openHead returns what reads the header of a value, behind its size, and the entries.
func openHead(value []byte) (c cursor, entries []byte, err error) {
	if len(value) < 2 || value[0] != magic {
		return c, nil, ErrCorrupt
	}
	if value[1] != version {
		return c, nil, fmt.Errorf("%w (version %d)", ErrVersion, value[1])
	}
	size, digits := binary.Uvarint(value[2:])
	end := 2 + max(digits, 0) + int(min(size, uint64(len(value))))
	if digits <= 0 || size < checkSize || end > len(value) {
		return c, nil, ErrCorrupt
	}
	if sum := binary.BigEndian.Uint32(value[end-checkSize:]); checksum(value[:end-checkSize]) != sum {
		return c, nil, ErrCorrupt
	}
	return cursor{data: value[2+digits : end-checkSize]}, value[end:], nil
}

// fields reads the fields ahead of the limits. It returns which parts there are.
func (c *cursor) fields() (h Head, parts int64) {
	parts = c.below(maxLimits<<partBits | 1<<partBits - 1)
	base := c.below(maxTime / second)
	h.base = base * second
	h.Floor = c.near(h.base, -1)
	h.Since = known(c.near(base, -1))
	h.Until, h.TTL, h.Revision = c.near(base, 1)*second, c.below(maxTime), c.fixed(8)
	if parts&hasCoarse != 0 {
		h.Coarse = c.above()
	}
	if parts&hasReset != 0 {
		h.Reset = c.above()
	}
	if parts&hasKept != 0 {
		size := int(c.below(int64(len(c.data) - c.at)))
		h.kept = c.data[c.at : c.at+min(size, len(c.data)-c.at)]
		c.at += len(h.kept)
		c.bad = c.bad || size == 0
	}
	return h, parts
}

// readHead decodes the header, and the sums into the empty timeline, and returns the entries. The
// limits take the memory of those of the header.
func readHead(value []byte, head *Head, sums *timeline) ([]byte, error) {
	c, entries, err := openHead(value)
	if err != nil {
		return nil, err
	}
	h, parts := c.fields()
	h.Limits = head.Limits[:0]
	for n := parts >> partBits; n > 0 && !c.bad; n-- {
		h.Limits = append(h.Limits, c.limit(h.base/second))
	}
	*head = h
	if !c.bad {
		c.readSums(sums)
	}
	if c.bad || h.Reset > h.Floor {
		return nil, ErrCorrupt
	}
	return entries, nil
}

// readSums adds the sums, which are all that is left.
func (c *cursor) readSums(t *timeline) {
	last := int64(0)
	for c.at < len(c.data) {
		run, cost := c.next(), int64(1)
		if run&hasCost != 0 {
			cost = c.below(maxSum)
		}
		distance := int64(min(run>>sumBits, maxTime+1))
		if run&inMillis == 0 {
			distance = distance*second + endOfSecond(last) - last
		}
		if last += distance; last > maxTime {
			c.fail()
		}
		if c.bad {
			return
		}
		t.push(last, cost)
	}
}
