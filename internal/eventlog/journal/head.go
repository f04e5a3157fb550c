package journal

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"
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
	return appendHead(dst, head, &timeline{}, 0), nil
}

// Parts that a header may have. Above these bits is the number of limits.
const (
	hasCoarse = 1 << iota
	hasReset
	hasKept
	hasSeconds
	hasMillis
	partBits = iota
)

// Marks of a limit in a header. Above these bits is the length of its window.
const (
	inSeconds = 1 << iota
	isBucket
	isShadow
	isTiled
	markBits = iota
)

// appendHead appends the header and the sums: those up to cut by second.
func appendHead(dst []byte, h Head, sums *timeline, cut int64) []byte {
	begin := len(dst)
	dst = append(dst, magic, version)
	middle := sums.search(cut)
	parts, base := len(h.Limits)<<partBits, h.base/second
	for part, has := range [partBits]bool{h.Coarse > 0, h.Reset > 0, len(h.kept) > 0, sums.upTo(middle) > 0, sums.total() > sums.upTo(middle)} {
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
	last := int64(0)
	if parts&hasSeconds != 0 {
		dst, last = appendSums(dst, sums, 0, middle, second, 0)
	}
	if parts&hasMillis != 0 {
		dst, _ = appendSums(dst, sums, middle, len(sums.times), 1, last)
	}
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
	if l.Tiles {
		marks |= isTiled
	}
	dst = binary.AppendUvarint(dst, uint64(window)<<markBits|marks)
	dst = binary.AppendUvarint(dst, uint64(l.Ceiling))
	if l.Tiles {
		name := ""
		if l.Zone != nil {
			name = l.Zone.String()
		}
		dst = append(binary.AppendUvarint(dst, uint64(len(name))), name...)
	}
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
	if l.Tiles = window&isTiled != 0; l.Tiles {
		l.Zone = c.zone()
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

// zone reads the name of the zone of a calendar; it may be empty.
func (c *cursor) zone() *time.Location {
	size := int(c.below(int64(len(c.data) - c.at)))
	name := string(c.data[c.at : c.at+size])
	c.at += size
	if name == "" || c.bad {
		return nil
	}
	zone, known := zones.Load(name)
	if !known {
		loaded, err := time.LoadLocation(name)
		if err != nil || loaded == time.Local {
			c.unknown = name
			return time.UTC
		}
		zone, _ = zones.LoadOrStore(name, loaded)
	}
	return zone.(*time.Location)
}

// zones has the zones of headers, by their names.
var zones sync.Map

// known returns the time after which all events are known if some of a second are not; 0: all are.
func known(unknown int64) int64 {
	if unknown <= 0 {
		return 0
	}
	return unknown*second + second - 1
}

// appendSums appends the sums from the i-th to before the end-th in units of time, and returns
// the time of the last one.
func appendSums(dst []byte, sums *timeline, i, end int, unit, last int64) ([]byte, int64) {
	var runs []byte
	var number uint64
	for i < end {
		at := sums.times[i] / unit
		cost := -sums.upTo(i)
		for i < end && sums.times[i]/unit == at {
			i++
		}
		for cost += sums.upTo(i); cost > 0; number++ {
			part := min(cost, maxSum)
			distance := uint64(at - last/unit)
			if part == 1 {
				runs = binary.AppendUvarint(runs, distance<<1)
			} else {
				runs = binary.AppendUvarint(runs, distance<<1|1)
				runs = binary.AppendUvarint(runs, uint64(part))
			}
			cost, last = cost-part, at*unit
		}
	}
	return append(binary.AppendUvarint(dst, number), runs...), last
}

// cursor reads varints. After a damaged one it is at the end.
type cursor struct {
	data []byte
	at   int
	bad  bool
	// unknown is a zone that the database of this machine does not have.
	unknown string
}

func (c *cursor) next() uint64 {
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
	last := int64(0)
	if parts&hasSeconds != 0 {
		c.readSums(sums, second, 0)
		if n := len(sums.times); n > 0 {
			last = sums.times[n-1] / second * second
		}
	}
	if parts&hasMillis != 0 {
		c.readSums(sums, 1, last)
	}
	if c.bad || c.at < len(c.data) || h.Reset > h.Floor {
		return nil, ErrCorrupt
	}
	if c.unknown != "" {
		return nil, fmt.Errorf("%w (time zone %q)", ErrVersion, c.unknown)
	}
	return entries, nil
}

// readSums adds sums in units of time, each at the end of its unit: a limit that newer rules add counts it
// for too long, and never too short.
func (c *cursor) readSums(t *timeline, unit, last int64) {
	n := int(c.below(int64(len(c.data) - c.at)))
	end, total := len(t.times), t.total()
	times, sums := slices.Grow(t.times, n)[:end+n], slices.Grow(t.sums, n)[:end+n]
	at := c.at // most runs are short: this saves calls, and writes to memory
	for ; n > 0; n-- {
		run, cost := uint64(0), int64(1)
		switch data := c.data[at:]; {
		case len(data) > 1 && data[0] < 0x80:
			run, at = uint64(data[0]), at+1
		case len(data) > 1 && data[1] < 0x80:
			run, at = uint64(data[0]&0x7f)|uint64(data[1])<<7, at+2
		default:
			c.at = at
			run = c.next()
			at = c.at
		}
		if run&1 == 1 {
			c.at = at
			cost = c.below(maxSum)
			at = c.at
		}
		distance := min(run>>1, maxTime+1)
		if last += int64(distance) * unit; last > maxTime {
			c.fail()
		}
		if c.bad {
			return
		}
		if total += cost; distance > 0 || end == 0 {
			times[end] = last + unit - 1
			end++
		}
		sums[end-1] = total
	}
	c.at, t.times, t.sums = at, times[:end], sums[:end]
}
