package journal

// fill advances the levels of all buckets to the first n records.
func (b *buckets) fill(rs *records, n int) {
	b.rewind(n)
	if len(b.list) == 0 {
		return
	}
	if b.folded == 0 {
		for i := range b.list {
			b.list[i].level = b.list[i].atFloor(rs)
		}
	}
	for ; b.folded < n; b.folded++ {
		r := &rs.list[b.folded]
		for i := range b.list {
			level := &b.list[i].level
			b.ahead = append(b.ahead, *level)
			if units := b.list[i].takes(rs, b.folded); units != 0 {
				level.add(b.list[i].Limit, r.Time, units)
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

// takes returns the units that the n-th record takes from the bucket at its time: none if the level at the floor
// includes the record.
func (b *bucket) takes(rs *records, n int) (units int64) {
	r := &rs.list[n]
	switch {
	case b.own && rs.isPassedOpen(n):
		return 0
	case !r.settles():
		return b.units(rs.used(n))
	case rs.reservation(n) >= 0: // the hit takes the true cost at its place
		return 0
	case b.own && n < rs.kept && r.Time <= rs.head.Floor: // the level at the floor includes the settlement
		return 0
	}
	return b.units(r.counts * r.Cost)
}

// atFloor returns the level at the floor, with the true costs of the hits that were settled after the floor had passed
// them: see the package comment. A true cost above the reserved one is added at the floor.
func (b *bucket) atFloor(rs *records) meter {
	m := b.floor
	if !b.own {
		return m
	}
	for n := range min(rs.kept, len(rs.list)) {
		if !rs.isPassedOpen(n) {
			continue
		}
		r := &rs.list[n]
		reserved, used := b.units(r.Count*r.Cost), b.units(rs.used(n))
		if used > reserved {
			m.add(b.Limit, m.time, used-reserved)
			continue
		}
		m.level = max(0, m.level-min(reserved-used, b.left(reserved, m.time-r.Time)))
	}
	return m
}

// left returns how many of the units, which were taken the given time ago, are still missing if they return before all
// others.
func (l Limit) left(units, ago int64) int64 {
	if ago > units/l.Rate {
		return 0
	}
	return units - max(ago, 0)*l.Rate
}

// levelAt returns the level of the limit's bucket at a later floor, and the time after which all events are in it.
//
// A rewrite puts the entries up to the floor before the others, which may lower the level. Two hits find an empty bucket.
// The first in the log is by a clock that is a second ahead, and the floor is between their times. In the order of the
// log the second hit waits behind the first. In the order of the rewrite the bucket drains for a second between them, and
// the turn of the next hit would be a second too early. So levelAt raises the level at the floor until the level behind
// all entries is that of the log.
func (j *judge) levelAt(l Limit, floor int64) (level, since int64) {
	if j.head == nil {
		return 0, 0
	}
	b := j.buckets.of(l)
	summed := j.head.Floor // the level includes the entries without an identity
	if b == nil {
		b, summed = &bucket{Limit: l, since: j.head.Since}, floor
		b.floor.addAll(l, &j.counted)
	}
	all := b.atFloor(&j.records) // in the order of the log
	passed, others := all, meter{time: floor}
	units := int64(0) // of the others
	for n := range j.list {
		r := &j.list[n]
		held := r.held()
		if i := j.settlementOf(n); i >= 0 { // the hit takes the cost of its settlement
			held = j.list[i].held()
		}
		taken := b.takes(&j.records, n)
		if held <= summed || taken <= 0 {
			continue
		}
		all.add(l, r.Time, taken)
		if r.appended() <= floor || r.settles() && r.Time <= floor {
			passed.add(l, r.Time, taken)
		} else {
			others.add(l, r.Time, taken)
			units += min(taken, maxDebt*l.Rate-units)
		}
	}
	level = passed.at(l, floor)
	last := max(all.time, others.time)
	if behind := all.at(l, last); behind > others.at(l, last) {
		level = max(level, min(behind-units+(last-floor)*l.Rate, maxDebt*l.Rate))
	}
	return level, b.since
}
