package journal

import "fmt"

// Rewrite is how a log is rewritten. Limits, Revision and TTL are of the process that rewrites;
// if the log has those of newer rules, it keeps them.
type Rewrite struct {
	Limits   []Limit
	Revision uint64
	// TTL covers the longest window, Retain and Young: a limit that newer rules add counts
	// nothing of an item that has expired. The longer one is kept.
	TTL int64

	Now int64 // milliseconds since 1970
	// Young is for how long, in milliseconds, an entry keeps its identity: longer than any
	// writer, void or repeated append looks for it, and twice the grace at least.
	Young int64
	// Retain is for how long events are kept at least, in milliseconds. They are kept for the
	// longest window anyway.
	Retain int64
}

// AppendRewrite appends a value to dst that replaces the one which was read. It is to be written by
// compare-and-swap: if anything was appended since, the rewrite must fail.
//
// If the new value is too large, older events are moved to the last second of their minute or hour
// ([Head.Coarse]), so that they count for too long and never too short.
func (l *Log) AppendRewrite(dst []byte, r Rewrite) ([]byte, error) {
	for _, n := range []int64{r.Now, r.Young, r.Retain, r.TTL} {
		if n < 0 || n > maxTime {
			return dst, fmt.Errorf("%w: %d of %+v", ErrOutOfRange, n, r)
		}
	}
	h := l.head
	if h.Outdated(r.Revision) {
		limits, err := enforced(nil, r.Limits)
		if err != nil {
			return dst, err
		}
		h.Revision, h.Limits = r.Revision, limits
	}
	h.TTL, h.base, h.Floor = max(h.TTL, r.TTL), r.Now, max(h.Floor, r.Now-r.Young)
	l.writeRecords(&h)

	window := max(longest(h.Limits, maxTime), longest(l.head.Limits, maxTime), r.Retain)
	l.split(h.Floor, -1)
	defer l.split(h.Floor, 1)
	old := l.counted.search(h.Floor - window)
	if l.counted.upTo(old) > 0 {
		h.Since = max(h.Since, l.counted.times[old-1]+second-1)
	}
	fine := max(longest(h.Limits, minute-1), longest(l.head.Limits, minute-1))
	cut := h.Floor - fine

	begin := len(dst)
	for _, step := range []int64{second, minute, hour} {
		if step > second {
			dst = dst[:begin]
		}
		g := h
		g.Coarse = l.coarsen(old, cut, step)
		if g.Coarse == 0 && h.Coarse > h.Floor-window {
			g.Coarse = h.Coarse
		}
		dst = append(appendHead(dst, g, &l.kept, cut), l.written...)
		if len(dst)-begin <= MaxSize*3/4 {
			return dst, nil
		}
	}
	if len(dst)-begin > MaxSize {
		return dst[:begin], ErrTooLarge
	}
	return dst, nil
}

// writeRecords encodes the entries that keep their identity, with their verdicts.
func (l *Log) writeRecords(h *Head) {
	l.written = l.written[:0]
	for _, r := range l.records {
		if r.Time <= h.Floor {
			continue
		}
		switch e := r.Entry; {
		case e.Kind == Void:
			l.written = encode(l.written, e)
		case r.counts > 0:
			if e.Count = r.counts; e.Kind != former {
				e.Kind = settled
			}
			if h.Revision != l.head.Revision {
				e.Kind = former
			}
			l.written = encode(l.written, e)
		default:
			e.Kind = denied
			l.written = encode(l.written, e)
		}
	}
	h.kept = int64(len(l.written))
}

// split takes what the entries after the floor count out of the sums, or adds it again.
func (l *Log) split(floor, sign int64) {
	for _, r := range l.records {
		if r.Time > floor && r.counts > 0 {
			l.counted.add(r.Time, sign*r.counts*r.Cost)
		}
	}
}

// coarsen copies the sums from the i-th on to kept, and moves those up to cut to the last second
// of their step. It returns the latest time to which it moved any.
func (l *Log) coarsen(i int, cut, step int64) (coarse int64) {
	l.kept.clear()
	for ; i < len(l.counted.times); i++ {
		time := l.counted.times[i]
		if last := time - time%step + step - second; step > second && last <= cut {
			time, coarse = last, last
		}
		if cost := l.counted.upTo(i+1) - l.counted.upTo(i); cost > 0 {
			l.kept.push(time, cost)
		}
	}
	return coarse
}
