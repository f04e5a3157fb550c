package journal

import ()

// judge decides the entries of a log, one after the other. It knows neither bytes nor rewrites.
type judge struct {
	question Question

	records
	counted timeline // all that counts
	buckets buckets

	before  []int // how many of the times that count are before the last hit's window, for each limit
	answers []answer
	ahead   []Content // for each key and limit of the question
}

type answer struct {
	record int // -1 if the entry is missing
	own    int64
}

func (j *judge) clear() {
	j.records = records{list: j.list[:0], table: j.table}
	j.question, j.answers, j.ahead = Question{}, j.answers[:0], j.ahead[:0]
	j.counted.clear()
	j.buckets.clear()
}

// begin makes room for so many entries, and for the answers. The sums are known.
func (j *judge) begin(head *Head, q Question, entries int) {
	j.question = q
	j.buckets.begin(head, q.Limits, &j.counted)
	j.records.begin(head, q.Keys, entries)
	j.before = j.before[:0]
	for _, limit := range head.Limits {
		j.before = append(j.before, j.counted.search(limit.Edge(head.base)))
	}
	for range q.Keys {
		j.answers = append(j.answers, answer{record: -1})
		for range q.Limits {
			j.ahead = append(j.ahead, Content{})
		}
	}
}

// fold applies the last record to all that precede it, and drops it if its identity is known, or if it comes
// too late: it may have been counted before.
func (j *judge) fold() {
	n := len(j.list) - 1
	last := &j.list[n]
	if last.Kind != Void && j.head.isStale(&last.Entry) {
		j.list = j.list[:n]
		return
	}
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
	known := &j.list[first]
	switch void := known.Entry; {
	case last.Kind == Void:
		j.list = j.list[:n]
		j.void(int(first), last.Entry)
	case void.Kind == Void: // it precedes its entry, which is judged where it is
		last.key, *place = known.key, int32(n+1)
		*known = record{key: -1}
		j.count(n)
		j.void(n, void)
	default:
		j.list = j.list[:n]
		j.extend(int(first), last.Entry)
	}
}

// extend has an entry with an end that comes again with a later one count until then, at its place. What is
// void stays void.
func (j *judge) extend(n int, again Entry) {
	r := &j.list[n]
	if r.counts == 0 || !r.isExtendedBy(&again) {
		return
	}
	j.add(r, -r.counts)
	r.Entry = r.extended(&again)
	j.add(r, r.counts)
	j.refill(n)
}

// count judges the n-th entry, and counts what is admitted of it. A pending hit counts in full: its
// writer voids what it does not admit.
func (j *judge) count(n int) {
	r := &j.list[n]
	switch {
	case r.Kind == Hit && !r.Pending:
		r.counts = j.admits(n)
	case r.Kind != denied:
		r.counts = r.Count
	}
	if r.key >= 0 {
		j.answers[r.key].record = n
		if !r.isPending() {
			j.answer(n)
		}
	}
	j.add(r, r.counts)
	j.refill(n)
}

// end answers what the question asks of pending hits, now that all voids are known: behind what
// counts ahead of them.
func (j *judge) end() {
	first := len(j.list)
	for _, a := range j.answers {
		if a.record >= 0 && j.list[a.record].isPending() {
			first = min(first, a.record)
		}
	}
	for n := len(j.list) - 1; n >= first; n-- {
		if j.counting(n) >= first {
			r := &j.list[n]
			j.add(r, -r.counts)
		}
	}
	for n := range j.order(first) {
		r := &j.list[n]
		if r.isPending() && r.key >= 0 && j.answers[r.key].record == n {
			j.answer(n)
		}
		j.add(r, r.counts)
	}
	j.buckets.fill(&j.records, len(j.list))
}

// void leaves of an entry what the void leaves. Voids of one entry are one.
func (j *judge) void(n int, e Entry) {
	r := &j.list[n]
	if r.Kind == Void {
		r.Count, r.Time = min(r.Count, e.Count), max(r.Time, e.Time)
		return
	}
	r.voided = max(r.voided, e.Time)
	if e.Count < r.counts {
		j.add(r, e.Count-r.counts)
		r.counts = e.Count
		j.refill(n)
	}
}

// refill rewinds the buckets to before the n-th entry, and what it settles, or what settles it.
func (j *judge) refill(n int) {
	for _, i := range []int{n, j.reservation(n), j.settlementOf(n)} {
		switch {
		case i < 0:
		case j.isPassedOpen(i):
			j.buckets.rewind(0)
		default:
			j.buckets.rewind(i)
		}
	}
}

// add adds hits of an entry to what counts.
func (j *judge) add(r *record, hits int64) {
	if hits == 0 {
		return
	}
	j.counted.add(r.Time, hits*r.Cost)
}

// admits returns how many of the hits the limits of the log admit, behind all that precede it.
func (j *judge) admits(n int) int64 {
	r := &j.list[n]
	j.buckets.fill(&j.records, n)
	count := r.Count
	for i, limit := range j.head.Limits {
		if limit.isBucket() {
			if !limit.Shadow {
				count = limit.fits(j.held(limit, r.Time).Count, r.Cost, count)
			}
			continue
		}
		j.before[i] = j.counted.after(limit.Edge(r.Time), j.before[i])
		count = limit.fits(j.counted.total()-j.counted.upTo(j.before[i]), r.Cost, count)
	}
	return count
}

// answer keeps what the question asks of the n-th entry, which does not yet count. The log has
// decided hits that are not pending, by its own limits; the reader's count if they are of other
// rules. A pending hit is the reader's to decide, by both.
func (j *judge) answer(n int) {
	r, q := &j.list[n], &j.question
	j.buckets.fill(&j.records, n)
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
		level := held.at(limit, now)
		count := limit.tokens(level)
		return Content{Count: count, Level: level}
	}
	edge := limit.Edge(now)
	return Content{Count: j.counted.later(edge)}
}

// level returns what the bucket of the limit lacks: one that neither the log nor its reader has is
// filled by what counts.
func (j *judge) level(limit Limit) (level meter) {
	if b := j.buckets.of(limit); b != nil {
		return b.level
	}
	level.addAll(limit, &j.counted)
	return level
}

// split takes what entries count that keep their identity after the floor out of the sums, or adds it
// again.
func (j *judge) split(floor, sign int64) {
	for i := range j.list {
		if r := &j.list[i]; r.counts > 0 && r.held() > floor {
			j.counted.add(r.Time, sign*r.counts*r.Cost)
		}
	}
}

// forget has only entries count that were appended after a reset.
func (j *judge) forget(reset int64) {
	j.counted.clear()
	j.buckets.empty(reset)
	for i := range j.list {
		switch r := &j.list[i]; {
		case r.appended() <= reset:
			r.counts = 0
		case r.counts > 0:
			j.counted.add(r.Time, r.counts*r.Cost)
		}
	}
}
