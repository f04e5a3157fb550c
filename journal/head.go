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
	// readable is the size of values that are read, that of the largest item of a Memcached server as
	// it is installed: appends of many processes may together exceed MaxSize by far.
	readable = 1 << 20

	fixedSize = 6       // before the first varint
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
	// Coarse is the time up to which events have been moved to the last second of their
	// minute or hour, because the log was too large, or 0.
	Coarse int64
	// Reset is a time: what was appended up to then counts nothing, on any replica. 0: nothing was
	// reset, as far as that matters yet.
	Reset int64

	base int64 // a time that times of entries are near to
	kept int64 // bytes of entries that the rewrite kept
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
	head.Limits, head.base, head.kept = limits, now, 0
	head.Floor = max(head.Floor, head.Reset, 0)
	for _, n := range []int64{now, head.Floor, head.Since, head.Coarse, head.Reset, head.TTL, head.Until} {
		if n < 0 || n > maxTime {
			return dst, fmt.Errorf("%w: %d of %+v", ErrOutOfRange, n, head)
		}
	}
	return appendHead(dst, head, &timeline{}, 0), nil
}

// appendHead appends the header and the sums: those up to cut by second.
func appendHead(dst []byte, h Head, sums *timeline, cut int64) []byte {
	begin := len(dst)
	dst = append(dst, magic, version, 0, 0, 0, 0)
	for _, n := range []int64{h.base, h.Floor, h.Since, h.Coarse} {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	dst = binary.AppendUvarint(dst, h.Revision)
	dst = binary.AppendUvarint(dst, uint64(h.TTL))
	dst = binary.AppendUvarint(dst, uint64(h.Until))
	dst = binary.AppendUvarint(dst, uint64(h.kept))
	dst = binary.AppendUvarint(dst, uint64(len(h.Limits)))
	for _, l := range h.Limits {
		dst = binary.AppendUvarint(dst, uint64(l.Window))
		dst = binary.AppendUvarint(dst, uint64(l.Ceiling))
	}
	middle := sums.search(cut)
	dst, last := appendSums(dst, sums, 0, middle, second, 0)
	dst, _ = appendSums(dst, sums, middle, len(sums.times), 1, last)
	if h.Reset > 0 {
		dst = binary.AppendUvarint(dst, uint64(h.Reset))
	}
	binary.BigEndian.PutUint32(dst[begin+2:], uint32(len(dst)-begin+4))
	return binary.BigEndian.AppendUint32(dst, checksum(dst[begin:]))
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

// readHead decodes the header, and the sums into the empty timeline, and returns the entries. The
// limits take the memory of those of the header.
func readHead(value []byte, head *Head, sums *timeline) ([]byte, error) {
	if len(value) < 2 || value[0] != magic {
		return nil, ErrCorrupt
	}
	if value[1] != version {
		return nil, fmt.Errorf("%w (version %d)", ErrVersion, value[1])
	}
	if len(value) < fixedSize {
		return nil, ErrCorrupt
	}
	end := int(binary.BigEndian.Uint32(value[2:]))
	if end < fixedSize+4 || end > len(value) {
		return nil, ErrCorrupt
	}
	if checksum(value[:end-4]) != binary.BigEndian.Uint32(value[end-4:]) {
		return nil, ErrCorrupt
	}
	c := cursor{data: value[fixedSize : end-4]}
	h := Head{base: c.below(maxTime), Floor: c.below(maxTime), Since: c.below(maxTime), Coarse: c.below(maxTime)}
	h.Revision, h.TTL, h.Until, h.kept = c.next(), c.below(maxTime), c.below(maxTime), c.below(readable)
	h.Limits = head.Limits[:0]
	for n := c.below(maxLimits); n > 0; n-- {
		limit := Limit{Window: c.below(maxTime), Ceiling: c.below(maxCeiling)}
		c.bad = c.bad || !limit.valid()
		h.Limits = append(h.Limits, limit)
	}
	*head = h
	c.readSums(sums, second, 0)
	last := int64(0)
	if n := len(sums.times); n > 0 {
		last = sums.times[n-1]
	}
	c.readSums(sums, 1, last)
	if !c.bad && c.at < len(c.data) {
		head.Reset = c.below(maxTime)
		c.bad = c.bad || head.Reset == 0 || head.Reset > head.Floor
	}
	if c.bad || c.at < len(c.data) {
		return nil, ErrCorrupt
	}
	return value[end:], nil
}

// readSums adds sums in units of time.
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
			times[end] = last
			end++
		}
		sums[end-1] = total
	}
	c.at, t.times, t.sums = at, times[:end], sums[:end]
}
