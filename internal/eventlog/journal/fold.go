package journal

import "slices"

// fill has the levels be those behind the first n records.
func (b *buckets) fill(rs *records, n int, undecided func(*record) bool) {
	b.rewind(n)
	if len(b.list) == 0 {
		return
	}
	if b.folded == 0 {
		for i := range b.list {
			b.list[i].level = filling{b.list[i].floor, b.list[i].floor}
		}
	}
	for ; b.folded < n; b.folded++ {
		r := &rs.list[b.folded]
		for i := range b.list {
			level := &b.list[i].level
			b.ahead = append(b.ahead, *level)
			time, units := b.list[i].takes(rs, b.folded)
			if units == 0 {
				continue
			}
			level.all.add(b.list[i].Limit, time, units)
			if !undecided(r) {
				level.decided.add(b.list[i].Limit, time, units)
			}
		}
	}
}

// rewind takes the n-th record and all that follow back.
func (b *buckets) rewind(n int) {
	if n >= b.folded || len(b.list) == 0 {
		return
	}
	for i := range b.list {
		b.list[i].level = b.ahead[n*len(b.list)+i]
	}
	b.folded, b.ahead = n, b.ahead[:n*len(b.list)]
}

// takes returns what the n-th record takes from the bucket, and when: at its floor what is left there of a hit
// that the floor has passed.
func (b *bucket) takes(rs *records, n int) (time, units int64) {
	r := &rs.list[n]
	switch {
	case r.rests != 0 && b.index >= 0:
		return b.floor.time, b.settled(rs, n, rs.rests[r.rests-1+b.index])
	case !r.settles():
		return r.Time, b.settled(rs, n, b.units(r.Count*r.Cost))
	case rs.reservation(n) >= 0, n < rs.kept && b.index >= 0 && r.Time <= rs.head.Floor: // its hit takes it, or the level at the floor has it
		return r.Time, 0
	}
	return r.Time, b.units(r.counts * r.Cost)
}

// settled returns what is left of the units that the bucket lacks of the n-th record: of a hit that is
// settled what its true cost leaves.
func (b *bucket) settled(rs *records, n int, rest int64) int64 {
	r := &rs.list[n]
	whole := b.units(r.Count * r.Cost)
	cost := r.counts * r.Cost
	if i := rs.settlementOf(n); i >= 0 && cost == 0 && !rs.isPassed(r) {
		cost = rs.list[i].counts * rs.list[i].Cost
	}
	return max(0, rest-whole+b.units(cost))
}

// drain is a token bucket, and what it lacks of each hit that is to be settled. What returns is of the other
// hits, then of the first of these: so the bucket without one of these lacks no more than what is left.
type drain struct {
	limit Limit
	meter
	rests []rest
}

// rest is what a bucket lacks of a record.
type rest struct {
	id   ID
	left int64
}

// rests are what each bucket lacks of hits, by their identity and indexOf.
type rests map[ID][]int64

// take returns the level that the i-th of the limits, a bucket, has at a floor besides the rests, and the time
// after which it knows all events. It takes the rests; of those of several replicas the most count.
func (r rests) take(j *judge, limits []Limit, i int, floor int64) (level, since int64) {
	level, left, since := j.decay(limits[i], floor)
	for _, one := range left {
		if r[one.id] == nil {
			r[one.id] = make([]int64, indexOf(limits, Limit{}))
		}
		of := &r[one.id][indexOf(limits, limits[i])]
		*of = max(*of, one.left)
	}
	return level, since
}

// indexOf returns which of the buckets of the limits that limit is; of none how many they are.
func indexOf(limits []Limit, limit Limit) (n int) {
	for i, l := range limits {
		switch {
		case l.isSameBucket(limit):
			return n
		case l.isBucket() && !slices.ContainsFunc(limits[:i], l.isSameBucket):
			n++
		}
	}
	return n
}

// add adds what a record takes at a time, as a rest or not.
func (d *drain) add(time, units int64, id ID, isRest bool) {
	if time > d.time {
		d.end(time)
	}
	before := d.level
	if d.meter.add(d.limit, d.time, units); isRest {
		d.rests = append(d.rests, rest{id, d.level - before})
	}
}

// end goes on to a time, and returns what the bucket lacks then besides the rests.
func (d *drain) end(time int64) (plain int64) {
	d.time, d.level = time, d.at(d.limit, time)
	plain = d.level
	for _, r := range d.rests {
		plain -= r.left
	}
	for i := 0; plain < 0; i++ {
		returned := min(-plain, d.rests[i].left)
		d.rests[i].left -= returned
		plain += returned
	}
	return plain
}

// decay returns the level of the limit's bucket at a later floor, with the records that are in it then, the
// rests of hits that are still to be settled, and the time after which it knows all events.
func (j *judge) decay(l Limit, floor int64) (level int64, rests []rest, since int64) {
	if j.head == nil {
		return 0, nil, 0
	}
	b := j.buckets.of(l)
	summed := j.head.Floor // the level has all that kept its identity no longer
	if b == nil {
		b, summed = &bucket{Limit: l, index: -1, since: j.head.Since}, floor
		b.floor.addAll(l, &j.counted)
	}
	d := drain{limit: l, meter: b.floor}
	for n := range j.list {
		r := &j.list[n]
		held, isRest := r.held(), r.counts > 0 && r.isRest(floor)
		if i := j.settlementOf(n); i >= 0 && r.counts == 0 { // the hit takes what its settlement counts
			held = j.list[i].held()
		}
		isIn := held > summed && (r.appended() <= floor || r.settles() && r.Time <= floor)
		if time, units := b.takes(&j.records, n); isIn && (units > 0 || isRest) {
			d.add(time, units, r.ID, isRest)
		}
	}
	return d.end(floor), d.rests, b.since
}

// isRest reports whether a floor has passed an entry that is to be settled, or may be.
func (e *Entry) isRest(floor int64) bool {
	return e.Ends > floor && e.appended() <= floor && !e.settles() && e.Kind != Void && e.Kind != denied
}
