package hierarchy

import "time"

// plan is what a batch derives from its stamp: which buckets its hits add to, and which it reads
// to decide them. Everything here is a function of its arguments.
type plan struct {
	stamp int64
	grace time.Duration
	ahead int64 // seconds for which the clocks of other processes may be ahead
	open  int64 // seconds for which a bucket that has ended may still change
	// spanOf is the function of that name, unless the simulation breaks it.
	spanOf func(now int64, length time.Duration, finest Level, ahead int64) span
}

// span returns what a limit of that length looks at.
func (p *plan) span(length time.Duration, finest Level) span {
	return p.spanOf(p.stamp, length, finest, p.ahead)
}

// closed returns the second before which buckets have to end to be closed.
func (p *plan) closed() int64 { return p.stamp - p.open }

// span is what a limit looks at: the buckets of its rank level that touch its
// window and the time ahead, and how the oldest of them lies to the window.
//
// The rank level depends on the window alone, never on the moment: what the add
// to it returns puts all hits on the counter in one order.
type span struct {
	rank  Level
	row   BucketRange // of the rank level, from the oldest that touches the window to the last ahead
	head  int64       // number of the bucket that the hit adds to
	edge  Window      // the part of the oldest bucket that is in the window
	whole bool        // that is all of it
}

// spanOf returns the span of a window of that length that ends with the second
// now, on a counter whose finest level is given. It reaches ahead of now, for
// hits that clocks which are ahead have stamped.
func spanOf(now int64, length time.Duration, finest Level, ahead int64) span {
	s := span{rank: max(finest, RankLevel(length))}
	seconds := int64(length / time.Second)
	w := Window{now - seconds + 1, now + min(ahead, seconds-1)}
	w.First = BucketAt(finest, w.First).First()
	s.row = runWithin(s.rank, w)
	s.head = BucketAt(s.rank, now).Number
	oldest := Bucket{s.rank, s.row.First}
	s.edge = Window{w.First, oldest.Last()}
	s.whole = oldest.First() == w.First
	return s
}

// others yields the buckets of the row but the head: what a hit has to read.
func (s *span) others(yield func(Bucket) bool) {
	for n := s.row.First; n <= s.row.Last; n++ {
		if n != s.head && !yield(Bucket{s.rank, n}) {
			return
		}
	}
}

// split appends the finer buckets that tile the edge.
func (s *span) split(cover Cover, finest Level) Cover {
	return appendCover(cover, s.edge, finest, s.rank-1)
}

// cover appends the buckets that tile the window and the time ahead exactly, of
// no coarser level than the rank.
func (s *span) cover(cover Cover, finest Level) Cover {
	if s.whole {
		return append(cover, s.row)
	}
	return append(s.split(cover, finest), BucketRange{s.rank, s.row.First + 1, s.row.Last})
}

// closed appends the buckets that tile the part of the window that buckets hold which end
// before that second.
func (s *span) closed(cover Cover, finest Level, before int64) Cover {
	return appendCover(cover, Window{s.edge.First, BucketAt(finest, before).First() - 1}, finest, s.rank)
}

// bounds returns the sum over the row, which is no less than what is in the
// window, and the sum without the oldest bucket where only a part of it is in
// the window, which is no more. They are equal where the sum is exact.
func (r *reader) bounds(s *span) (lo, hi int64) {
	for n := s.row.First; n <= s.row.Last; n++ {
		hi += r.value(Bucket{s.rank, n})
	}
	lo = hi
	if !s.whole {
		lo -= r.value(Bucket{s.rank, s.row.First})
	}
	return lo, hi
}

// exact returns the sum over the cover, if all of its buckets are known.
func (r *reader) exact(cover Cover) (sum int64, known bool) {
	for bucket := range cover.Buckets() {
		value, known := r.told(bucket.ID())
		if !known {
			return 0, false
		}
		sum += value
	}
	return sum, true
}

// wantOthers wants what bounds the limits, beside what the adds return.
func (c *counterState) wantOthers() {
	for _, check := range c.windows {
		for bucket := range check.span.others {
			c.want(bucket)
		}
	}
}

// nameAdds names the buckets that the counter's hits add to.
func (c *counterState) nameAdds(p *plan) {
	if len(c.adds) > 0 {
		return
	}
	finest, coarsest := levels(c.name.counter)
	for l := finest; l <= coarsest; l++ {
		bucket := BucketAt(l, p.stamp)
		c.add(bucket, bucket.Expires(retention(c.name.counter), p.grace))
	}
}

// wantExactly wants the buckets that the exact sums of the limits need.
func (c *counterState) wantExactly() {
	for _, check := range c.windows {
		c.tiles = check.span.cover(c.tiles[:0], c.finest)
		c.wantAll(c.tiles)
	}
}

// wantOpenEdges wants the buckets at the windows' edges of the limits that some
// hit of the batch may fit and may not, and that are not exact yet. It reports
// whether there is such a limit.
func (c *counterState) wantOpenEdges() (open bool) {
	most := c.adding + c.looked
	if c.name.countAll {
		most += c.adding // what other limits deny comes again
	}
	for _, check := range c.windows {
		if check.lo < check.ceiling && check.hi+most > check.ceiling && check.lo != check.hi {
			open = true
			c.tiles = check.span.split(c.tiles[:0], c.finest)
			c.wantAll(c.tiles)
		}
	}
	return open
}

// bound sets the bounds of all limits.
func (c *counterState) bound() {
	if !c.readable() {
		return
	}
	for _, check := range c.windows {
		check.lo, check.hi = c.bounds(&check.span)
	}
}

// sum makes the sums of those limits exact whose edges are known.
func (c *counterState) sum() {
	for _, check := range c.windows {
		c.tiles = check.span.cover(c.tiles[:0], c.finest)
		if exact, known := c.exact(c.tiles); known {
			check.lo, check.hi = exact, exact
		}
	}
}

// closedTiles returns the closed buckets that tile the limit's window, for the next use of its
// counter's tiles.
func (u *limitEval) closedTiles(before int64) Cover {
	u.counter.tiles = u.window.span.closed(u.counter.tiles[:0], u.counter.finest, before)
	return u.counter.tiles
}
