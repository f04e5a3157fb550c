package journal

import (
	"iter"
	"math/bits"
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
	// Pending is the time after which pending hits are undecided: they count, but a denial
	// that rests on them is transient. If it is 0, none are.
	Pending int64
}

// Verdict is what a log says of one entry.
type Verdict struct {
	// Found is false if the entry is not in the log: it was not appended, the item was lost
	// since, or it is stale, so that its identity may be forgotten. A writer appends a new
	// one, with a new time.
	Found bool
	// Counted is how many of the hits count, which the limits of the log decide.
	Counted int64
	// Admitted is how many of them the reader's limits admit as well. If it is less than
	// Counted, the writer voids the others.
	Admitted int64
	// Transient says that more would fit if pending hits were void.
	Transient bool
}

// Log is a decoded value. The zero value is an empty log, and Read reuses its memory.
// A Log is not safe for concurrent use.
type Log struct {
	head      Head
	size      int      // of the value
	offset    int      // of its entries
	records   []record // the entries with an identity, in their order
	counted   timeline // all that counts
	undecided timeline // what of it pending hits may still give back

	table   []int32 // by identity: 1 + index of a record, or -1 - index of a key not met yet
	shift   int
	places  []int // for each limit, where the last hit's window began
	answers []answer
	ahead   []int64 // for each key and limit of the question

	kept    timeline // scratch of a rewrite
	written []byte
}

// record is an entry, and how many of its hits count.
type record struct {
	Entry
	counts int64
	key    int // of the question, or -1
}

type answer struct {
	record    int // -1 if the entry is missing
	own       int64
	transient bool
}

// Read decodes a value, and judges its entries. After an error the log is empty.
func (l *Log) Read(value []byte, q Question) error {
	l.clear()
	if len(value) > readable {
		return ErrTooLarge
	}
	entries, err := l.readHead(value)
	if err != nil {
		l.clear()
		return err
	}
	l.prepare(len(value), len(entries), &q)
	for len(entries) > 0 {
		l.records = append(l.records, record{})
		size := decode(&l.records[len(l.records)-1].Entry, entries, l.head.base)
		if size == 0 {
			l.clear()
			return ErrCorrupt
		}
		l.fold(&q)
		entries = entries[size:]
	}
	return nil
}

func (l *Log) clear() {
	l.head = Head{Limits: l.head.Limits[:0]}
	l.size, l.offset, l.records = 0, 0, l.records[:0]
	l.answers, l.ahead = l.answers[:0], l.ahead[:0]
	l.counted.clear()
	l.undecided.clear()
}

// prepare makes room for the entries and the answers.
func (l *Log) prepare(size, entries int, q *Question) {
	l.size, l.offset = size, size-entries
	l.records = slices.Grow(l.records, entries/shortSize+1)
	exponent := bits.Len(uint(4 * (entries/shortSize + len(q.Keys) + 1)))
	l.shift = 64 - exponent
	l.table = slices.Grow(l.table[:0], 1<<exponent)[:1<<exponent]
	clear(l.table)
	l.places = slices.Grow(l.places[:0], len(l.head.Limits))[:len(l.head.Limits)]
	for j, limit := range l.head.Limits {
		l.places[j] = l.counted.search(limit.edge(l.head.base))
	}
	for i, key := range q.Keys {
		*l.find(key, q) = int32(-1 - i)
		l.answers = append(l.answers, answer{record: -1})
		for range q.Limits {
			l.ahead = append(l.ahead, 0)
		}
	}
}

// find returns where in the table the identity is or belongs.
func (l *Log) find(id ID, q *Question) *int32 {
	mask := len(l.table) - 1
	for i := int(uint64(id) * 0x9E3779B97F4A7C15 >> l.shift); ; i++ {
		place := &l.table[i&mask]
		if n := int(*place); n == 0 || n > 0 && l.records[n-1].ID == id || n < 0 && q.Keys[-1-n] == id {
			return place
		}
	}
}

// fold applies the last record to all that precede it, and drops it if its identity is known.
func (l *Log) fold(q *Question) {
	n := len(l.records) - 1
	last := &l.records[n]
	place := l.find(last.ID, q)
	if *place <= 0 {
		last.key = -1 - int(*place)
		*place = int32(n + 1)
		if last.Kind != Void {
			l.count(n, q)
		}
		return
	}
	l.records = l.records[:n]
	n = int(*place - 1)
	known := &l.records[n]
	switch void := known.Entry; {
	case last.Kind == Void:
		l.void(known, last.Entry, q)
	case void.Kind == Void: // it precedes its entry
		known.Entry = last.Entry
		l.count(n, q)
		l.void(known, void, q)
	}
}

// count judges the n-th entry, and counts what is admitted of it.
func (l *Log) count(n int, q *Question) {
	r := &l.records[n]
	switch r.Kind {
	case Hit:
		r.counts = l.judge(r)
	case Increment, settled, former:
		r.counts = r.Count
	}
	if stale := r.Kind == Hit && r.Time <= l.head.Floor; r.key >= 0 && !stale {
		l.answer(n, q)
	}
	l.add(r, r.counts, q)
}

// void leaves of an entry what the void leaves. Voids of one entry are one.
func (l *Log) void(r *record, e Entry, q *Question) {
	if r.Kind == Void {
		r.Count, r.Time = min(r.Count, e.Count), max(r.Time, e.Time)
	} else if e.Count < r.counts {
		l.add(r, e.Count-r.counts, q)
		r.counts = e.Count
	}
}

// add adds hits of an entry to what counts.
func (l *Log) add(r *record, hits int64, q *Question) {
	if hits == 0 {
		return
	}
	l.counted.add(r.Time, hits*r.Cost)
	if r.Pending && q.Pending > 0 && r.Time > q.Pending {
		l.undecided.add(r.Time, hits*r.Cost)
	}
}

// judge returns how many of the hits the limits of the log admit.
func (l *Log) judge(r *record) int64 {
	if r.Time <= l.head.Floor {
		return 0
	}
	count := r.Count
	for j, limit := range l.head.Limits {
		l.places[j] = l.counted.after(limit.edge(r.Time), l.places[j])
		count = limit.fits(l.counted.total()-l.counted.upTo(l.places[j]), r.Cost, count)
	}
	return count
}

// answer keeps what the question asks of the n-th entry, which does not yet count.
func (l *Log) answer(n int, q *Question) {
	r := &l.records[n]
	a := answer{record: n, own: r.Count}
	rules := [][]Limit{l.head.Limits, nil}
	if q.Revision != l.head.Revision || r.Kind == former {
		rules[1] = q.Limits
		a.own = l.fitting(r, false, q.Limits)
	}
	if r.Kind == Increment {
		a.own = r.Count
	} else if r.Time > l.head.Floor && min(r.counts, a.own) < r.Count && l.undecided.total() > 0 {
		a.transient = l.fitting(r, true, rules...) > l.fitting(r, false, rules...)
	}
	for j, limit := range q.Limits {
		l.ahead[r.key*len(q.Limits)+j] = l.Held(limit, r.Time)
	}
	l.answers[r.key] = a
}

// fitting returns how many of the hits have room in the limits, or would have without the
// undecided hits.
func (l *Log) fitting(r *record, decided bool, rules ...[]Limit) int64 {
	count := r.Count
	for _, limits := range rules {
		for _, limit := range limits {
			if limit.Shadow {
				continue
			}
			sum := l.Held(limit, r.Time)
			if decided {
				sum -= l.undecided.later(limit.edge(r.Time))
			}
			count = limit.fits(sum, r.Cost, count)
		}
	}
	return count
}

// Verdict returns the verdict of the i-th key.
func (l *Log) Verdict(i int) Verdict {
	a := l.answers[i]
	if a.record < 0 {
		return Verdict{}
	}
	counted := l.records[a.record].counts
	return Verdict{Found: true, Counted: counted, Admitted: min(counted, a.own), Transient: a.transient}
}

// Ahead returns what the window of the question's j-th limit held ahead of the i-th key.
func (l *Log) Ahead(i, j int) int64 { return l.ahead[i*len(l.ahead)/len(l.answers)+j] }

// Head returns what the log says of itself.
func (l *Log) Head() Head { return l.head }

// HasRoom reports whether bytes more may be appended. If not, the log is to be rewritten, or the
// hit is to be decided by on_error.
func (l *Log) HasRoom(bytes int) bool { return l.size+bytes <= MaxSize }

// Due reports whether a rewrite is due: a quarter of the log was appended since the last one.
func (l *Log) Due() bool {
	appended := l.size - l.offset - int(l.head.kept)
	return appended > 256+(l.size-appended)/4
}

// Sum returns what counts from the time first to the time last, both included.
func (l *Log) Sum(first, last int64) int64 {
	return l.counted.upTo(l.counted.search(last)) - l.counted.upTo(l.counted.search(first-1))
}

// Held returns what counts in the window of the limit that ends at now, and what is later. It is
// what a hit at now finds ahead of itself.
func (l *Log) Held(limit Limit, now int64) int64 {
	return l.counted.later(limit.edge(now))
}

// Frees returns the first moment, from now on, at which a hit of that cost has room in the limit
// if nothing else comes. It is false for a cost above the ceiling.
func (l *Log) Frees(limit Limit, cost, now int64) (at int64, ok bool) {
	if cost > limit.Ceiling {
		return 0, false
	}
	leave := sort.Search(len(l.counted.times), func(i int) bool {
		return l.counted.total()-l.counted.upTo(i) <= limit.Ceiling-cost
	})
	if leave == 0 {
		return now, true
	}
	return max(now, limit.leaves(l.counted.times[leave-1])), true
}

// History returns the intervals of length milliseconds that hold events, oldest first: their
// beginnings and counts.
func (l *Log) History(length int64) iter.Seq2[int64, int64] {
	return func(yield func(int64, int64) bool) {
		times := l.counted.times
		for i := 0; i < len(times); {
			from, start := i, times[i]-times[i]%length
			for i < len(times) && times[i] < start+length {
				i++
			}
			count := l.counted.upTo(i) - l.counted.upTo(from)
			if count > 0 && !yield(start, count) {
				return
			}
		}
	}
}
