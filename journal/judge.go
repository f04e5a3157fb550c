package journal

import (
	"math/bits"
	"slices"
)

// judge decides the entries of a log, one after the other. It knows neither bytes nor rewrites.
type judge struct {
	head     *Head
	question Question

	records []record // the entries with an identity, in their order
	kept    int      // how many of them a rewrite kept; all, while these are folded
	// rests are, of each hit that is to be settled and that the floor has passed, and of each token bucket of
	// the log, what of the hit the bucket lacks at the floor.
	rests     []int64
	counted   timeline // all that counts
	undecided timeline // what of it pending hits may still give back
	buckets   buckets

	table   []int32 // by identity: 1 + index of a record, or -1 - index of a key not met yet
	shift   int
	places  []int // for each limit, where the last hit's window began
	answers []answer
	ahead   []Content // for each key and limit of the question
}

// record is an entry, and how many of its hits count.
type record struct {
	Entry
	counts   int64
	key      int  // of the question, or -1
	released bool // a Void says so
	voided   int64
	rests    int // 1 + where the rests of the record begin; 0: it has none, see judge.rests
}

// held returns until when a rewrite keeps the identity of the entry. One that does not count needs no
// later time than its writer, and its voids, do, and what may have it without them.
func (r *record) held() int64 {
	if r.counts == 0 && r.Kind != denied {
		return max(r.appended(), r.voided)
	}
	return r.Entry.held()
}

type answer struct {
	record int // -1 if the entry is missing
	own    int64
}

func (j *judge) clear() {
	j.head, j.question, j.kept = nil, Question{}, 0
	j.records, j.rests, j.answers, j.ahead = j.records[:0], j.rests[:0], j.answers[:0], j.ahead[:0]
	j.counted.clear()
	j.undecided.clear()
	j.buckets.clear()
}

// begin makes room for so many entries, and for the answers. The sums are known.
func (j *judge) begin(head *Head, q Question, entries int) {
	j.head, j.question = head, q
	j.buckets.begin(head, q.Limits, &j.counted)
	j.records = slices.Grow(j.records, entries+1)
	exponent := bits.Len(uint(4 * (entries + len(q.Keys) + 1)))
	j.shift = 64 - exponent
	j.table = slices.Grow(j.table[:0], 1<<exponent)[:1<<exponent]
	clear(j.table)
	j.places = slices.Grow(j.places[:0], len(head.Limits))[:len(head.Limits)]
	for i, limit := range head.Limits {
		j.places[i] = j.counted.search(limit.edge(head.base))
	}
	for i, key := range q.Keys {
		*j.find(key) = int32(-1 - i)
		j.answers = append(j.answers, answer{record: -1})
		for range q.Limits {
			j.ahead = append(j.ahead, Content{})
		}
	}
}

// next returns the entry that is to be folded next.
func (j *judge) next() *Entry {
	j.records = append(j.records, record{})
	return &j.records[len(j.records)-1].Entry
}

// takeRests takes the rests of the entry that is to be folded next. It is false if they are not those of a
// hit that is to be settled, of so many buckets of the log.
func (j *judge) takeRests(rests []int64) bool {
	r, buckets := &j.records[len(j.records)-1], j.buckets.own
	if (len(rests) > 0) != (buckets > 0 && r.isRest(j.head.Floor)) || len(rests) > 0 && len(rests) != buckets {
		return false
	}
	if len(rests) > 0 {
		r.rests = len(j.rests) + 1
		j.rests = append(j.rests, rests...)
	}
	return true
}

// find returns where in the table the identity is or belongs.
func (j *judge) find(id ID) *int32 {
	mask := len(j.table) - 1
	for i := int(uint64(id) * 0x9E3779B97F4A7C15 >> j.shift); ; i++ {
		place := &j.table[i&mask]
		if n := int(*place); n == 0 || n > 0 && j.records[n-1].ID == id || n < 0 && j.question.Keys[-1-n] == id {
			return place
		}
	}
}

// place returns which of the records has the identity, or -1.
func (j *judge) place(id ID) int {
	if j.head == nil {
		return -1
	}
	return max(int(*j.find(id)), 0) - 1
}

// fold applies the last record to all that precede it, and drops it if its identity is known.
func (j *judge) fold() {
	n := len(j.records) - 1
	last := &j.records[n]
	place := j.find(last.ID)
	if *place <= 0 {
		last.key = -1 - int(*place)
		*place = int32(n + 1)
		if last.Kind != Void {
			j.count(n)
		}
		return
	}
	first := *place - 1
	known := &j.records[first]
	switch void := known.Entry; {
	case last.Kind == Void:
		j.records = j.records[:n]
		j.void(int(first), last.Entry)
	case void.Kind == Void: // it precedes its entry, which is judged where it is
		last.key, *place = known.key, int32(n+1)
		*known = record{key: -1}
		j.count(n)
		j.void(n, void)
	default:
		j.records = j.records[:n]
	}
}

// count judges the n-th entry, and counts what is admitted of it. A pending hit counts in full: its
// writer voids what it does not admit. What comes too late may have been counted before.
func (j *judge) count(n int) {
	r := &j.records[n]
	stale := j.head.isStale(&r.Entry)
	switch {
	case stale:
	case r.Kind == Hit && !r.Pending:
		r.counts = j.admits(n)
	case r.Kind != denied:
		r.counts = r.Count
	}
	if r.key >= 0 && !stale {
		j.answers[r.key].record = n
		if !r.isPending() {
			j.answer(n)
		}
	}
	j.add(r, r.counts)
	if i := j.reservation(n); i >= 0 {
		j.rewind(i)
	}
}

// end answers what the question asks of pending hits, now that all voids are known: behind what
// counts ahead of them.
func (j *judge) end() {
	first := len(j.records)
	for _, a := range j.answers {
		if a.record >= 0 && j.records[a.record].isPending() {
			first = min(first, a.record)
		}
	}
	for n := len(j.records) - 1; n >= first; n-- {
		r := &j.records[n]
		j.add(r, -r.counts)
	}
	for n := first; n < len(j.records); n++ {
		r := &j.records[n]
		if r.isPending() && r.key >= 0 && j.answers[r.key].record == n {
			j.answer(n)
		}
		j.add(r, r.counts)
	}
	j.fill(len(j.records))
}

// void leaves of an entry what the void leaves. Voids of one entry are one.
func (j *judge) void(n int, e Entry) {
	r := &j.records[n]
	if r.Kind == Void {
		r.Count, r.Time, r.Released = min(r.Count, e.Count), max(r.Time, e.Time), r.Released || e.Released
		return
	}
	r.released, r.voided = r.released || e.Released, max(r.voided, e.Time)
	if e.Count < r.counts {
		j.add(r, e.Count-r.counts)
		r.counts = e.Count
		j.rewind(n)
	}
}

// add adds hits of an entry to what counts.
func (j *judge) add(r *record, hits int64) {
	if hits == 0 {
		return
	}
	j.counted.add(r.Time, hits*r.Cost)
	if j.isUndecided(r) {
		j.undecided.add(r.Time, hits*r.Cost)
	}
}

// isUndecided reports whether a denial that rests on the hit is transient.
func (j *judge) isUndecided(r *record) bool {
	return r.isPending() && j.question.Pending > 0 && r.Time > j.question.Pending
}

// admits returns how many of the hits the limits of the log admit, behind all that precede it.
func (j *judge) admits(n int) int64 {
	r := &j.records[n]
	j.fill(n)
	count := r.Count
	for i, limit := range j.head.Limits {
		if limit.isBucket() {
			if !limit.Shadow {
				count = limit.fits(j.held(limit, r.Time).Count, r.Cost, count)
			}
			continue
		}
		j.places[i] = j.counted.after(limit.edge(r.Time), j.places[i])
		count = limit.fits(j.counted.total()-j.counted.upTo(j.places[i]), r.Cost, count)
	}
	return count
}

// answer keeps what the question asks of the n-th entry, which does not yet count. The log has
// decided hits that are not pending, by its own limits; the reader's count if they are of other
// rules. A pending hit is the reader's to decide, by both.
func (j *judge) answer(n int) {
	r, q := &j.records[n], &j.question
	j.fill(n)
	a := answer{record: n, own: r.Count}
	rules := [2][]Limit{j.head.Limits, nil}
	if q.Revision != j.head.Revision || r.Kind == former {
		rules[1] = q.Limits
	}
	switch {
	case r.Kind == Increment:
	case r.isPending():
		a.own = j.fitting(r, rules[:])
	case rules[1] != nil:
		a.own = j.fitting(r, rules[1:])
	}
	for i, limit := range q.Limits {
		j.ahead[r.key*len(q.Limits)+i] = j.held(limit, r.Time)
	}
	j.answers[r.key] = a
}

// fitting returns how many of the hits have room in the limits.
func (j *judge) fitting(r *record, rules [][]Limit) int64 {
	count := r.Count
	for _, limits := range rules {
		for _, limit := range limits {
			if limit.Shadow {
				continue
			}
			count = limit.fits(j.held(limit, r.Time).Count, r.Cost, count)
		}
	}
	return count
}

// held returns what counts in the window of the limit that ends at now, and what is later.
func (j *judge) held(limit Limit, now int64) Content {
	if limit.isBucket() {
		held := j.level(limit)
		level := held.all.at(limit, now)
		count := limit.tokens(level)
		return Content{count, count - limit.tokens(held.decided.at(limit, now)), level}
	}
	edge := limit.edge(now)
	return Content{Count: j.counted.later(edge), Undecided: j.undecided.later(edge)}
}

// level returns what the bucket of the limit lacks: one that neither the log nor its reader has is
// filled by what counts.
func (j *judge) level(limit Limit) (level filling) {
	if b := j.buckets.of(limit); b != nil {
		return b.level
	}
	level.all.addAll(limit, &j.counted)
	return filling{level.all, level.all}
}

// split takes what entries count that keep their identity after the floor out of the sums, or adds it
// again.
func (j *judge) split(floor, sign int64) {
	for i := range j.records {
		if r := &j.records[i]; r.counts > 0 && r.held() > floor {
			j.counted.add(r.Time, sign*r.counts*r.Cost)
		}
	}
}

// forget has only entries count that were appended after a reset.
func (j *judge) forget(reset int64) {
	j.counted.clear()
	j.buckets.empty(reset)
	for i := range j.records {
		switch r := &j.records[i]; {
		case r.appended() <= reset:
			r.counts = 0
		case r.counts > 0:
			j.counted.add(r.Time, r.counts*r.Cost)
		}
	}
}
