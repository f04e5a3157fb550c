package journal

import "fmt"

// Rewrite is how a log is rewritten. Limits, Revision and TTL are of the process that rewrites;
// if the log has those of newer rules, it keeps them.
type Rewrite struct {
	Limits   []Limit
	Revision uint64
	// TTL covers the longest window, Retain and Young: a limit that newer rules add counts
	// nothing of an item that has expired. Of rules as old the longer one is kept.
	TTL int64
	// Until is until when the item lives that is written.
	Until int64
	// Since is the time after which the log knows all events, if that is later than its own.
	Since int64

	Now int64 // milliseconds since 1970
	// Young is for how long, in milliseconds, an entry keeps its identity at the least: longer than
	// any writer, void or repeated append looks for it, and twice the grace at least. Of Now or more,
	// all keep it: another replica may lack a void.
	Young int64
	// Alone: no other replica has the log, and no entry is appended twice. What is void loses its identity
	// at once. What is denied does not: its writer looks for it.
	Alone bool
	// Retain is for how long events are kept at least, in milliseconds. They are kept for the
	// longest window anyway.
	Retain int64
}

// leastSpare is for how long a log lives at least when its entries do not need it any more.
const leastSpare = 10 * second

// Spare returns for how long a log that is written now lives beyond the need of its entries, if they
// need it for so long, and it was written last at that age: the rarer its hits, the longer, so that few
// of them extend its life. A hit does that once less than renewal is left of the spare. In milliseconds.
func Spare(need, age int64) (spare, renewal int64) {
	spare = max(min(max(need/4, 2*age), need), leastSpare)
	return spare, spare / 2
}

// Youth returns for how long, in milliseconds, entries keep their identity in a log of that size in which
// hits wait for their turns: until these come, too, to be given back by a call and a clock that are late
// together by half of young, unless the log is over half its bound.
func Youth(young, waits int64, size int) int64 {
	if size > MaxSize/2 {
		return young
	}
	return max(young, waits+young/2)
}

// AppendRewrite appends a value to dst that replaces the one which was read. It is to be written by
// compare-and-swap: if anything was appended since, the rewrite must fail.
//
// If the new value is too large, older events are moved to the end of their minute or hour
// ([Head.Coarse]), so that they count for too long and never too short.
func (l *Log) AppendRewrite(dst []byte, r Rewrite) ([]byte, error) {
	for _, n := range []int64{r.Now, r.Young, r.Retain, r.TTL, r.Until, r.Since} {
		if n < 0 || n > maxTime {
			return dst, fmt.Errorf("%w: %d of %+v", ErrOutOfRange, n, r)
		}
	}
	h := l.head
	h.Limits = append(l.rewriter.limits[:0], h.Limits...)
	h.TTL = max(h.TTL, r.TTL)
	if h.Outdated(r.Revision) {
		limits, err := enforced(h.Limits[:0], r.Limits)
		if err != nil {
			return dst, err
		}
		h.Revision, h.Limits, h.TTL = r.Revision, limits, r.TTL
	}
	h.Until, h.Since = r.Until, max(h.Since, r.Since)
	l.rewriter.limits = h.Limits
	h.base, h.Floor = r.Now-r.Now%second, max(h.Floor, r.Now-r.Young)

	window := max(LongestWindow(h.Limits), LongestWindow(l.head.Limits), r.Retain)
	l.judge.split(h.Floor, -1)
	defer l.judge.split(h.Floor, 1)
	for i := range h.Limits {
		if b := &h.Limits[i]; b.isBucket() {
			level, since := l.judge.levelAt(*b, h.Floor)
			b.level, b.since = level, b.unknown(max(since, r.Since), h.Floor)
		}
	}
	h.kept = l.rewriter.writeRecords(&l.judge.records, &h, r, !sameRules(l.head.Limits, h.Limits))
	if h.Reset <= h.Floor-window { // what was before it has left all windows
		h.Reset = 0
	}
	old := l.judge.counted.search(h.Floor - window)
	if l.judge.counted.upTo(old) > 0 {
		h.Since = max(h.Since, endOfSecond(l.judge.counted.times[old-1]))
	}
	fine := max(Fine(h.Limits), Fine(l.head.Limits))
	cut := wholeSeconds(h.Floor - fine)
	shadow := min(cut, wholeSeconds(h.Floor-Fine(r.Limits))) // windows in shadow slide as well, if there is room

	begin := len(dst)
	for _, try := range []struct{ step, cut int64 }{{second, shadow}, {second, cut}, {minute, cut}, {hour, cut}} {
		step, cut := try.step, try.cut
		dst = dst[:begin]
		g := h
		g.Coarse = l.rewriter.coarsen(&l.judge.counted, old, cut, step)
		if g.Coarse == 0 && h.Coarse > h.Floor-window {
			g.Coarse = h.Coarse
		}
		dst = appendHead(dst, g, &l.rewriter.kept)
		if len(dst)-begin <= MaxSize*3/4 {
			return dst, nil
		}
	}
	if len(dst)-begin > MaxSize {
		return dst[:begin], ErrTooLarge
	}
	return dst, nil
}

// rewriter writes out what a judge has decided.
type rewriter struct {
	limits  []Limit
	kept    timeline
	entries []Entry
	written []byte
	keeper  keeper
}

// writeRecords returns the entries that keep their identity, encoded with their verdicts. If the limits change,
// what counts is former. Pending hits stay pending. A settlement has the place of its hit, which may be dropped.
func (w *rewriter) writeRecords(records *records, h *Head, how Rewrite, change bool) []byte {
	w.entries = w.entries[:0]
	for n := range records.order(0) {
		r := &records.list[n]
		all := how.Young >= how.Now && !how.Alone && r.Entry.held() > h.Floor
		if r.Kind != 0 && (all || r.isKept(h.Floor, how.Alone)) {
			w.entries = append(w.entries, r.decided(change))
		}
	}
	w.written = w.keeper.appendAll(w.written[:0], h.base, w.entries)
	return w.written
}

// decided returns the entry with its verdict.
func (r *record) decided(change bool) Entry {
	e := r.Entry
	switch {
	case e.Kind == Void:
	case r.counts == 0:
		if e.Kind != denied && e.Ends != 0 {
			e.Ends = r.voided
		}
		e.Kind, e.Pending = denied, e.isPending()
	case e.Kind == Increment, e.Kind == Hit && e.Pending:
		e.Count = r.counts
	case change || e.Kind == former:
		e.Kind, e.Count = former, r.counts
	default:
		e.Kind, e.Count = settled, r.counts
	}
	return e
}

// wholeSeconds returns the last time up to that one that ends a second: up to it sums are by second.
func wholeSeconds(time int64) int64 { return (time+1)/second*second - 1 }

func endOfSecond(time int64) int64 { return time - time%second + second - 1 }

// coarsen copies the sums from the i-th on to kept, and moves those up to cut to the end of their step. A limit that
// newer rules add counts them for too long, and never too short. It returns the latest time to which it moved any, or
// 0 if the steps are seconds.
func (w *rewriter) coarsen(sums *timeline, i int, cut, step int64) (coarse int64) {
	w.kept.clear()
	for ; i < len(sums.times); i++ {
		time := sums.times[i]
		if last := time - time%step + step - 1; last <= cut {
			if time = last; step > second {
				coarse = last
			}
		}
		if cost := sums.upTo(i+1) - sums.upTo(i); cost > 0 {
			w.kept.push(time, cost)
		}
	}
	return coarse
}
