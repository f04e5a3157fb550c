package journal

import (
	"bytes"
	"fmt"
	"slices"
)

// Merged is what the values of the replicas of one counter hold together.
type Merged struct {
	// Value is the merged value; nil: no replica has one that is well.
	Value []byte
	// Lacks is what each replica lacks of it, in the order of the values.
	Lacks []Lack
}

// Lack is what a replica lacks of the merged value.
type Lack struct {
	// Missing says that it has no value: the merged one is to be created.
	Missing bool
	// Entries are to be appended, in any order with those of others. Appended twice they count once.
	Entries []byte
	// Keys says that it lacks entries of the reader. Until it has them, the reader must not decide:
	// another one may read that replica alone.
	Keys bool
	// Sums says that it has less in sums, or not the latest reset: the merged value is to replace
	// its own.
	Sums bool
	// Settlement says that it has another settlement of an entry, with a smaller cost, first: the merged
	// value is to replace its own. Until then the larger one may be lost.
	Settlement bool
	// Err says why its value was not merged: of ErrVersion it is to be left as it is, else the
	// merged value is to replace it.
	Err error
}

// Merge merges the values of the replicas of a counter. A nil one is missing. The merged value has
// those entries ahead of the keys, the reader's own, that are ahead of them on any replica: on one
// that lacks them all, and of entries that a rewrite kept all others that it kept, since it has put
// them in another order. If all values are the same, it is that one, which was not read. What was
// appended after until, in milliseconds, may be on its way to the other replicas: the value has it,
// and no replica lacks it. Merge does not change the values, and keeps none but that.
func Merge(values [][]byte, keys []ID, until int64) Merged {
	merged := Merged{Lacks: make([]Lack, len(values))}
	if areEqual(values) && !isRewritten(values[0], keys) {
		merged.Value = values[0]
		return merged
	}
	m := merger{until: until, places: map[ID]int{}}
	for i, value := range values {
		if value == nil {
			merged.Lacks[i].Missing, merged.Lacks[i].Keys = true, len(keys) > 0
			continue
		}
		r := &replica{lack: &merged.Lacks[i]}
		if r.lack.Err = r.read(value); r.lack.Err == nil {
			m.replicas = append(m.replicas, r)
		}
	}
	if len(m.replicas) == 0 {
		return merged
	}
	m.forget()
	m.mergeHeads()
	for _, r := range m.replicas {
		m.unite(r, keys)
	}
	for _, r := range m.replicas {
		m.compare(r)
	}
	m.mergeLevels()
	m.mergeSums()
	merged.Value = m.encode(keys)
	return merged
}

// areEqual reports whether no value is missing, and all are the same.
func areEqual(values [][]byte) bool {
	return len(values) > 0 && !slices.ContainsFunc(values, func(v []byte) bool { return v == nil || !bytes.Equal(v, values[0]) })
}

// isRewritten reports whether one of the keys is among the entries that a rewrite kept. Of a damaged
// value it does not matter.
func isRewritten(value []byte, keys []ID) bool {
	if len(keys) == 0 {
		return false
	}
	c, _, err := openHead(value)
	if err != nil {
		return false
	}
	head, _ := c.fields()
	var e Entry
	var k keeper
	k.begin(head.base)
	for c = (cursor{data: head.kept}); c.at < len(c.data) && !c.bad; {
		if k.next(&c, &e); !c.bad && slices.Contains(keys, e.ID) {
			return true
		}
	}
	return false
}

// merger merges the logs of replicas.
type merger struct {
	replicas []*replica
	head     Head
	sums     timeline
	members  []member
	places   map[ID]int // of members
	until    int64
	kept     int // the most entries that a rewrite kept of a replica
}

// replica is the log of one replica.
type replica struct {
	log  Log
	lack *Lack
	sums timeline // with its entries up to the merged floor
	// The sums from next to before until are compared next.
	next, until int
}

// member is an entry of the union, with its verdict.
type member struct {
	Entry
	counts int64 // of a void: how many hits it leaves
	ahead  bool  // of the keys
}

// read decodes a value whose times are near enough to its base to be near to another one's, too.
func (r *replica) read(value []byte) error {
	if err := r.log.Read(value, Question{}); err != nil {
		return err
	}
	near := func(time int64) bool { return max(time, r.log.head.base)-min(time, r.log.head.base) < 1<<(timeBits-3) }
	ok := near(r.log.head.Floor)
	for i := range r.log.judge.list {
		e := &r.log.judge.list[i]
		ok = ok && (e.Kind == 0 || near(e.Time) && near(e.appended()) && near(e.Entry.held()))
	}
	if !ok {
		return fmt.Errorf("%w: its times are far apart", ErrCorrupt)
	}
	return nil
}

// forget has the replicas forget what they hold that was appended up to the latest reset of any. Sums
// of one that was rewritten since, by a process that could not read the reset, stay.
func (m *merger) forget() {
	for _, r := range m.replicas {
		m.head.Reset = max(m.head.Reset, r.log.head.Reset)
	}
	for _, r := range m.replicas {
		head, j := &r.log.head, &r.log.judge
		if head.Reset == m.head.Reset {
			continue
		}
		if r.lack.Sums = true; head.Floor <= m.head.Reset {
			j.forget(m.head.Reset)
			head.Floor, head.Coarse = m.head.Reset, 0
		}
		head.Reset = m.head.Reset
	}
}

// mergeHeads keeps the limits of the newest rules.
func (m *merger) mergeHeads() {
	m.head, m.kept = m.replicas[0].log.head, m.replicas[0].log.judge.kept
	for _, r := range m.replicas[1:] {
		h := r.log.head
		switch {
		case h.Revision > m.head.Revision:
			m.head.Revision, m.head.Limits, m.head.TTL = h.Revision, h.Limits, h.TTL
		case h.Revision == m.head.Revision:
			m.head.TTL = max(m.head.TTL, h.TTL)
		}
		m.head.base, m.head.Floor = max(m.head.base, h.base), max(m.head.Floor, h.Floor)
		m.head.Since, m.head.Coarse = min(m.head.Since, h.Since), max(m.head.Coarse, h.Coarse)
		m.head.Until = min(m.head.Until, h.Until)
		m.kept = max(m.kept, r.log.judge.kept)
	}
}

// mergeLevels takes, of each token bucket, the highest level of a replica at the merged floor.
func (m *merger) mergeLevels() {
	m.head.Limits = slices.Clone(m.head.Limits)
	for i := range m.head.Limits {
		l := &m.head.Limits[i]
		if !l.isBucket() {
			continue
		}
		levels := make([]int64, len(m.replicas))
		l.since = maxTime
		for n, r := range m.replicas {
			level, since := r.log.judge.levelAt(*l, m.head.Floor)
			levels[n], l.since = level, min(l.since, since)
		}
		l.level = slices.Max(levels)
		for n, r := range m.replicas {
			r.lack.Sums = r.lack.Sums || levels[n] < l.level
		}
	}
}

// unite adds the entries of a replica that have an identity yet.
func (m *merger) unite(r *replica, keys []ID) {
	records := r.log.judge.list
	first := len(records) // of the keys
	for _, key := range keys {
		n := r.log.judge.place(key)
		if n < 0 || records[n].Kind == Void {
			first, r.lack.Keys = len(records), true
			break
		}
		first = min(first, max(n, r.log.judge.kept))
	}
	for n := range records {
		record := &records[n]
		if record.Kind == 0 || record.Entry.held() <= m.head.Floor || record.appended() <= m.head.Reset {
			continue
		}
		e := member{Entry: record.decided(false), counts: record.counts, ahead: n < first}
		if e.Kind == Void {
			e.counts = e.Count
		}
		place, known := m.places[e.ID]
		if e.Entry = e.settle(); !known {
			m.places[e.ID] = len(m.members)
			m.members = append(m.members, e)
			continue
		}
		m.members[place] = m.members[place].with(e)
	}
}

// with returns the union of an entry of two replicas. Of their hits the least count; a void is of
// an entry that may yet come.
func (a member) with(b member) member {
	least, ahead := min(a.counts, b.counts), a.ahead || b.ahead
	switch {
	case a.Kind == Void && b.Kind == Void:
		a.Time = max(a.Time, b.Time)
	case b.Kind == Void, a.Kind == denied && b.Kind != denied: // a is what is left of b, or has been
	case a.Kind == Void, b.Kind == denied, b.Cost > a.Cost: // of two settlements of one entry the larger
		a = b
	case a.isExtendedBy(&b.Entry):
		a.Entry = a.extended(&b.Entry)
	}
	a.counts, a.ahead = least, ahead
	a.Entry = a.settle()
	return a
}

// settle returns the entry as it is to be written.
func (m *member) settle() Entry {
	e := m.Entry
	if e.Count = m.counts; e.Kind != Void && m.counts == 0 {
		e.Kind, e.Pending, e.Count = denied, e.isPending(), 1
	}
	return e
}

// compare finds the entries that a replica lacks, and its sums up to the merged floor.
func (m *merger) compare(r *replica) {
	for i := range m.members {
		e := &m.members[i]
		n := r.log.judge.place(e.ID)
		r.lack.Settlement = r.lack.Settlement || n >= 0 && e.settles() && r.log.judge.list[n].Cost < e.Cost
		switch {
		case m.isOnItsWay(e):
		case n < 0 && e.counts == 0 && e.Kind != Void && e.held() <= r.log.head.Floor: // it has been forgotten
		case n < 0, r.log.judge.list[n].Kind == Void && e.Kind != Void, e.counts > 0 && r.log.judge.list[n].isExtendedBy(&e.Entry):
			r.lack.Entries = encode(r.lack.Entries, e.Entry)
		case r.log.judge.list[n].Kind == Void && r.log.judge.list[n].Count > e.counts, r.log.judge.list[n].counts > e.counts:
			r.lack.Entries = encode(r.lack.Entries, Entry{Kind: Void, ID: e.ID, Time: e.appended(), Cost: 1, Count: e.counts})
		}
	}
	r.log.judge.split(m.head.Floor, -1)
	counted := &r.log.judge.counted
	for i, time := range counted.times {
		if cost := counted.upTo(i+1) - counted.upTo(i); cost > 0 {
			r.sums.push(time, cost)
		}
	}
}

// isOnItsWay reports whether replicas may lack the entry since it is so young, or what settles it: its void alone
// would have them count neither.
func (m *merger) isOnItsWay(e *member) bool {
	i, settled := m.places[e.ID.Settlement()]
	return e.appended() > m.until || settled && m.members[i].appended() > m.until
}

// span returns the time after what is compared with what is at a time: its second, or its hour
// where a log is coarse.
func (m *merger) span(time int64) int64 {
	if time-time%hour <= m.head.Coarse {
		return time - time%hour + hour
	}
	return time - time%second + second
}

// mergeSums takes, of each span, the sums of the replica that has most. Of replicas that have as
// much it takes the later times.
func (m *merger) mergeSums() {
	for {
		var first *replica
		for _, r := range m.replicas {
			if r.next < len(r.sums.times) && (first == nil || r.sums.times[r.next] < first.sums.times[first.next]) {
				first = r
			}
		}
		if first == nil {
			return
		}
		end := m.span(first.sums.times[first.next])
		best, most := first, int64(0)
		for _, r := range m.replicas {
			for r.until < len(r.sums.times) && r.sums.times[r.until] < end {
				r.until++
			}
			if cost := r.cost(); cost > most || cost == most && r.isLater(best) {
				best, most = r, cost
			}
		}
		for i := best.next; i < best.until; i++ {
			m.sums.push(best.sums.times[i], best.sums.upTo(i+1)-best.sums.upTo(i))
		}
		for _, r := range m.replicas {
			r.lack.Sums = r.lack.Sums || r.cost() < most
			r.next = r.until
		}
	}
}

// cost returns the cost of the sums that are compared.
func (r *replica) cost() int64 { return r.sums.upTo(r.until) - r.sums.upTo(r.next) }

// isLater reports whether the sums that are compared are at later times than as much of another one.
func (r *replica) isLater(other *replica) bool {
	for i, j := r.until, other.until; i > r.next && j > other.next; i, j = i-1, j-1 {
		if a, b := r.sums.times[i-1], other.sums.times[j-1]; a != b {
			return a > b
		}
		a, b := r.sums.upTo(i)-r.sums.upTo(i-1), other.sums.upTo(j)-other.sums.upTo(j-1)
		if a != b {
			return a > b
		}
	}
	return false
}

// isInLevels reports whether the merged levels have the entry: it goes where a rewrite keeps entries.
func (m *merger) isInLevels(e *member) bool {
	if !e.settles() {
		return e.isOpen(m.head.Floor) && slices.ContainsFunc(m.head.Limits, Limit.isBucket)
	}
	reservation, known := m.places[e.ID&^settlement]
	switch {
	case e.Time > m.head.Floor:
		return false
	case !known:
		return true
	}
	hit := &m.members[reservation]
	return hit.Kind == Void || hit.counts > 0 || hit.Kind == denied && hit.appended() <= m.head.Floor
}

// encode returns the merged value: what the levels have, voids, what is ahead of the keys, these, and what is not.
func (m *merger) encode(keys []ID) []byte {
	var voids, ahead, others, entries []Entry
	for i := range m.members {
		switch e := m.members[i].Entry; {
		case m.isInLevels(&m.members[i]):
			entries = append(entries, e)
		case e.Kind == Void:
			voids = append(voids, e)
		case slices.Contains(keys, e.ID):
		case m.members[i].ahead:
			ahead = append(ahead, e)
		default:
			others = append(others, e)
		}
	}
	inLevels := len(entries)
	entries = append(append(entries, voids...), ahead...)
	for _, key := range keys {
		if place, known := m.places[key]; known && m.members[place].Kind != Void {
			entries = append(entries, m.members[place].Entry)
		}
	}
	entries = append(entries, others...)
	kept := max(min(m.kept, len(entries)), inLevels)
	m.head.kept = new(keeper).appendAll(nil, m.head.base, entries[:kept])
	value := appendHead(nil, m.head, &m.sums)
	for _, e := range entries[kept:] {
		value = encode(value, e)
	}
	return value
}
