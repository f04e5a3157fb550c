package journal

import (
	"iter"
	"math"
	"slices"
	"sort"
)

// Question is what a reader asks of a log.
type Question struct {
	// Keys are the entries whose verdicts are asked for, each once.
	Keys []ID
	// Limits and Revision are those of the reader. Shadow limits only count.
	Limits   []Limit
	Revision uint64
	// Newest are the limits of that revision. If the log has the same, the reader's revision is that of the log: files
	// of different times may hold the same rules.
	Newest []Limit
}

// Verdict is what a log says of one entry.
type Verdict struct {
	// Found is false if the entry is not in the log: it was not appended, the item was lost
	// since, or it is stale, so that its identity may be forgotten. A writer appends a new
	// one, with a new time.
	Found bool
	// Counted is how many of the hits count: the limits of the log decide it, unless they are
	// pending. Of pending hits all count that are not void.
	Counted int64
	// Admitted is how many of them the reader's limits admit as well, or of a pending hit how
	// many fit. If it is less than Counted, the writer voids the others, always.
	Admitted int64
}

// Content is what a window holds, or what a token bucket lacks.
type Content struct {
	Count int64
	Level int64 // of a token bucket: see Limit.Wait
}

// Log is a decoded value. The zero value is an empty log, and Read reuses its memory.
// A Log is not safe for concurrent use.
type Log struct {
	head     Head
	size     int // of the value
	offset   int // of its entries
	judge    judge
	rewriter rewriter
	keeper   keeper
}

// Read decodes a value, and judges its entries. After an error the log is empty.
func (l *Log) Read(value []byte, q Question) error {
	err := l.read(value, q)
	if err != nil {
		l.Clear()
	}
	return err
}

func (l *Log) read(value []byte, q Question) error {
	l.Clear()
	entries, err := readHead(value, &l.head, &l.judge.counted)
	if err != nil {
		return err
	}
	l.size, l.offset = len(value), len(value)-len(entries)
	if sameRules(l.head.Limits, q.Newest) {
		q.Revision = l.head.Revision
	}
	l.judge.begin(&l.head, q, len(entries)/shortSize+len(l.head.kept)/leastKept)
	l.keeper.begin(l.head.base)
	l.judge.kept = math.MaxInt
	for c := (cursor{data: l.head.kept}); c.at < len(c.data); {
		if l.keeper.next(&c, l.judge.next()); c.bad {
			return ErrCorrupt
		}
		l.judge.fold()
	}
	l.head.kept, l.judge.kept = nil, len(l.judge.list)
	for len(entries) > 0 {
		size := decode(l.judge.next(), entries, l.head.base)
		if size == 0 {
			return ErrCorrupt
		}
		l.judge.fold()
		entries = entries[size:]
	}
	l.judge.end()
	return nil
}

// Clear empties the log.
func (l *Log) Clear() {
	l.head = Head{Limits: l.head.Limits[:0]}
	l.size, l.offset = 0, 0
	l.judge.clear()
}

// Verdict returns the verdict of the i-th key.
func (l *Log) Verdict(i int) Verdict {
	a := l.judge.answers[i]
	if a.record < 0 {
		return Verdict{}
	}
	counted := l.judge.list[a.record].counts
	return Verdict{Found: true, Counted: counted, Admitted: min(counted, a.own)}
}

// Entry returns the entry with the i-th key, as the log has it, if its verdict has found it.
func (l *Log) Entry(i int) Entry { return l.judge.list[l.judge.answers[i].record].Entry }

// Ahead returns what the window of the question's j-th limit held ahead of the i-th key.
func (l *Log) Ahead(i, j int) Content { return l.judge.ahead[i*len(l.judge.question.Limits)+j] }

// Head returns what the log says of itself.
func (l *Log) Head() Head { return l.head }

// IsOfReader reports whether the limits of the log are those of the reader's rules.
func (l *Log) IsOfReader() bool { return l.judge.question.Revision == l.head.Revision }

// Latest returns the latest time by which an entry of the log was appended, or its floor.
func (l *Log) Latest() int64 {
	latest := l.head.Floor
	for i := range l.judge.list {
		latest = max(latest, l.judge.list[i].appended())
	}
	return latest
}

// LaterThan reports whether any entry counts that was appended at that time or after it, but for that one.
func (l *Log) LaterThan(time int64, but ID) bool {
	return slices.ContainsFunc(l.judge.list, func(r record) bool { return r.counts > 0 && r.ID != but && r.appended() >= time })
}

// IsUndecided reports whether a hit counts that is pending and was appended after that time, apart from those of the
// question: it may be void yet.
func (l *Log) IsUndecided(after int64) bool {
	return slices.ContainsFunc(l.judge.list, func(r record) bool {
		return r.key < 0 && r.counts > 0 && r.isPending() && r.appended() > after
	})
}

// Due reports whether a rewrite is due: an entry more would let the log grow further than it may
// since the last one.
func (l *Log) Due() bool {
	return l.size+shortSize > Grown(l.offset, l.head.Limits)
}

// DueBy reports whether the entries that keep their identity up to the floor take more than a log may
// grow: a rewrite with that floor, alone or not, makes sums of them.
func (l *Log) DueBy(floor int64, alone bool) bool {
	size := l.size
	for i := range l.judge.list {
		switch r := &l.judge.list[i]; {
		case r.isKept(floor, alone):
		case i < l.judge.kept:
			size -= keptSize
		default:
			size -= shortSize
		}
	}
	return l.size > Grown(size, l.head.Limits)
}

const (
	// smallGrown is how large any log may grow: Memcached has a chunk of 240 bytes for its item.
	smallGrown = 149
	// fixedGrowth is how far a log may grow, besides a quarter of it.
	fixedGrowth = 256
	// fewEvents is about what a log with a few events takes after a rewrite.
	fewEvents = 76
	// leastGrown is the same as smallGrown for token buckets: their chunk has 152 bytes.
	leastGrown = 61
)

// Grown returns how large a log may grow that takes so many bytes after a rewrite. One with a few
// events may not become several times as large: it grows by no more than three times the others. One
// of token buckets alone forgets its entries, so it stays near to what the youngest take.
func Grown(size int, limits []Limit) int {
	if len(limits) > 0 && LongestWindow(limits) == 0 {
		return max(leastGrown, size+min(fixedGrowth, (size-leastGrown)*2/3))
	}
	return max(smallGrown, size+min(fixedGrowth+size/4, (size-fewEvents)*3))
}

// Age returns for how long the log has not been rewritten, in milliseconds; 0: there is none.
func (l *Log) Age(now int64) int64 {
	if l.head.base == 0 {
		return 0
	}
	return max(now-l.head.base, 0)
}

// Since returns the time after which the log knows all events that matter to the limit.
func (l *Log) Since(limit Limit) int64 {
	if b := l.judge.buckets.of(limit); b != nil {
		return b.since
	}
	return l.head.Since
}

// Drained returns the time at which the last of the token buckets is full again.
func (l *Log) Drained() (time int64) {
	for i := range l.judge.buckets.list {
		b := &l.judge.buckets.list[i]
		time = max(time, b.level.time+b.level.level/b.Rate+1)
	}
	return time
}

// Sum returns what counts from the time first to the time last, both included.
func (l *Log) Sum(first, last int64) int64 {
	return l.judge.counted.upTo(l.judge.counted.search(last)) - l.judge.counted.upTo(l.judge.counted.search(first-1))
}

// Held returns what counts in the window of the limit that ends at now, and what is later. It is
// what a hit at now finds ahead of itself.
func (l *Log) Held(limit Limit, now int64) Content { return l.judge.held(limit, now) }

// Open returns the cost in the window of the limit that ends at now of reservations that are neither settled nor ended,
// apart from the entries of the question; of a token bucket at most what it would get back of them.
func (l *Log) Open(limit Limit, now int64) (cost int64) {
	for n := range l.judge.list {
		r := &l.judge.list[n]
		switch {
		case r.key >= 0 || r.counts == 0 || r.Kind == Increment || !r.isOpen(now):
		case limit.isBucket():
			cost += limit.left(limit.units(r.counts*r.Cost), l.head.Floor-r.Time) / limit.Window
		case r.Time > limit.Edge(now):
			cost += r.counts * r.Cost
		}
	}
	return cost
}

// Frees returns the first moment, from now on, at which a hit of that cost has room in the limit
// if nothing else comes. It is false for a cost above the ceiling.
func (l *Log) Frees(limit Limit, cost, now int64) (at int64, ok bool) {
	if cost > limit.Ceiling {
		return 0, false
	}
	if limit.isBucket() {
		return l.judge.level(limit).frees(limit, cost, now), true
	}
	leave := sort.Search(len(l.judge.counted.times), func(i int) bool {
		return l.judge.counted.total()-l.judge.counted.upTo(i) <= limit.Ceiling-cost
	})
	if leave == 0 {
		return now, true
	}
	return max(now, limit.Leaves(l.judge.counted.times[leave-1])), true
}

// Counted yields the times at which something counts in the window of the limit that ends at now, or is later, oldest
// first, and how much. Of a token bucket there are none: it has a level.
func (l *Log) Counted(limit Limit, now int64) iter.Seq2[int64, int64] {
	return func(yield func(int64, int64) bool) {
		if limit.isBucket() {
			return
		}
		counted := &l.judge.counted
		for i := counted.search(limit.Edge(now)); i < len(counted.times); i++ {
			if count := counted.upTo(i+1) - counted.upTo(i); count != 0 && !yield(counted.times[i], count) {
				return
			}
		}
	}
}

// Returns returns the first moment after now at which a token bucket of that level lacks only so many tokens.
func (l Limit) Returns(level, tokens, now int64) int64 {
	return now + (max(level-tokens*l.Window, 0)+l.Rate-1)/l.Rate
}

// Knows reports whether the log knows, of each event, whether it was up to that time: a rewrite may have moved events
// of the past to the ends of their seconds.
func (l *Log) Knows(time int64) bool {
	last := endOfSecond(time)
	return time == last || l.Sum(last, last) == 0
}

// History returns the intervals of length milliseconds that hold events, oldest first: their
// beginnings and counts.
func (l *Log) History(length int64) iter.Seq2[int64, int64] {
	return func(yield func(int64, int64) bool) {
		times := l.judge.counted.times
		for i := 0; i < len(times); {
			from, start := i, times[i]-times[i]%length
			for i < len(times) && times[i] < start+length {
				i++
			}
			count := l.judge.counted.upTo(i) - l.judge.counted.upTo(from)
			if count > 0 && !yield(start, count) {
				return
			}
		}
	}
}
