package hierarchy

import (
	"slices"
	"time"

	"github.com/counterd/counterd/events"
)

// search looks for the first second in which a hit fits a limit, if nothing else
// comes: when so many of those events have left the window, the oldest first, that
// there is room for its cost.
//
// It goes down the hierarchy, from the buckets that tile the window to that one
// in which the last of those events lies, its children, and theirs. Where it is cut short
// that event lies no later than the hit, and so the wait is no longer than the window.
type search struct {
	use   *limitEval
	need  int64    // how much has to leave
	tiles []Bucket // in the order of time, in which it has to be found
	found Bucket   // the best so far: what has to leave lies no later than its end
	below bool     // the tiles are its children
	// wanted are the buckets that it has to know to go on.
	wanted []Bucket
}

// newSearch begins a search on what is known of the counter.
func newSearch(u *limitEval, cost int64) *search {
	c, span := u.counter, &u.window.span
	s := &search{use: u}
	tiles := Cover{span.row}
	if u.window.lo == u.window.hi {
		tiles = span.cover(nil, c.finest)
	} else {
		// Without the bucket at the edge it is too much already, and that bucket
		// leaves first.
		tiles[0].First++
	}
	s.tiles = slices.Collect(tiles.Buckets())
	s.need = u.window.lo + c.taken + cost - u.window.ceiling
	return s
}

// next goes down as far as values are known. It returns the buckets that it has to
// know to go on, none when it has come to the end.
func (s *search) next() []Bucket {
	c := s.use.counter
	for {
		if s.below {
			s.dropLost()
		}
		s.found, s.below = s.pick(), true
		if s.found.Level == c.finest {
			return nil
		}
		children := bucketsWithin(s.found.Level-1, Window{s.found.First(), s.found.Last()})
		s.tiles = children
		if slices.ContainsFunc(children, func(b Bucket) bool { return !c.knows(b) }) {
			return children
		}
	}
}

// dropLost drops what the bucket that was found held and its children, which were read
// after it, do not: that has been rolled back since, or was lost. When the first of them has
// left the window it counts no more, for then they count in its place.
func (s *search) dropLost() {
	gap := s.use.counter.value(s.found)
	for _, tile := range s.tiles {
		gap -= s.use.counter.value(tile)
	}
	s.need -= max(gap, 0)
}

// pick returns the tile in which the last of what has to leave lies.
func (s *search) pick() Bucket {
	best := s.tiles[0]
	for _, tile := range s.tiles {
		value := s.use.counter.value(tile)
		if value >= s.need {
			return tile
		}
		if value > 0 {
			best = tile
			s.need -= value
		}
	}
	return best
}

// wait returns how long after the stamp the window has left behind what has to leave.
// Where the found bucket is not of the finest level yet, that lies no later in it than the
// stamp.
func (s *search) wait(stamp int64) Wait {
	last := s.found.Last()
	if finest := s.use.counter.finest; s.found.Level > finest {
		last = min(last, BucketAt(finest, max(stamp, s.found.First())).Last())
	}
	return max(Wait(last-stamp)+s.use.windowLength(), 1)
}

// window returns the length of the limit's window.
func (u *limitEval) windowLength() Wait { return Wait(u.window.limit.Window / time.Second) }

// isInItsOwnWay reports whether the hit fitted the limit, and would not any more: another
// limit has denied it, and this one's counter counts it all the same.
func (h *hit) isInItsOwnWay(u *limitEval) bool {
	return h.isDenied() && h.path == adding && u.counter.name.countAll && u.enforced() && u.counter.err == nil &&
		u.window.lo+u.counter.taken+h.cost > u.window.ceiling
}

// resets finds when hits fit that do not fit now.
type resets struct {
	stamp int64
	open  []*search
}

// findResets finds, for each limit that a hit does not fit, when it will: in at
// most three more round trips to read, one for each level below.
func (f *batch) findResets() {
	r := resets{stamp: f.stamp}
	for _, h := range f.hits.handedOut() {
		if h.isWeighed() && h.verdict != asBefore {
			r.begin(h)
		}
	}
	for len(r.open) > 0 {
		claims := r.next()
		r.drop(f.readOn(claims))
	}
	for _, h := range f.hits.handedOut() {
		h.stretch()
	}
}

// begin finds the resets of the hit that need no search, and begins the others.
func (r *resets) begin(h *hit) {
	for i := range h.limits {
		u := &h.limits[i]
		switch {
		case u.allows && !h.isInItsOwnWay(u):
		case h.cost > u.window.ceiling || u.listing == events.Denied:
			u.reset = Never
		case u.source == ofNone:
		case u.cached != nil:
			u.reset = u.cached.reset
		case u.sourceNow().failed() && !u.source.failed():
			// The store has denied it and has failed since, for others.
			u.reset = u.windowLength()
		case h.retries:
			// It will look again; till then the bucket of the first step will do.
			s := newSearch(u, h.cost)
			s.found = s.pick()
			u.reset = s.wait(r.stamp)
		default:
			s := newSearch(u, h.cost)
			if u.reset = 1; s.need > 0 { // else what was in its way when it looked has gone meanwhile
				r.open = append(r.open, s)
			}
		}
	}
}

// next takes all searches as far as values are known. It returns the counters that have more to
// read; the searches that have come to the end are over.
func (r *resets) next() (claims []*counterState) {
	going := r.open[:0]
	for _, s := range r.open {
		missing := s.next()
		s.use.reset = s.wait(r.stamp)
		if len(missing) == 0 {
			continue
		}
		going = append(going, s)
		if c := s.use.counter; !slices.Contains(claims, c) {
			claims = append(claims, c)
		}
		s.wanted = missing
	}
	for _, s := range going {
		for _, bucket := range s.wanted {
			s.use.counter.want(bucket)
		}
	}
	r.open = going
	return claims
}

// drop ends the searches on counters whose read failed. They keep what they have found so far,
// which is no earlier than the truth.
func (r *resets) drop(failed []*counterState) {
	r.open = slices.DeleteFunc(r.open, func(s *search) bool { return slices.Contains(failed, s.use.counter) })
}

// stretch lets a hit on an elastic limit in as soon as the whole event has room for
// it, if that is before the limit itself has.
func (h *hit) stretch() {
	whole := Wait(0)
	for i := range h.limits {
		u := &h.limits[i]
		u.own = u.reset
		if len(u.window.rule.Per) == 0 && !u.allows {
			whole = whole.longer(u.reset)
		}
	}
	for i := range h.limits {
		u := &h.limits[i]
		if u.window.rule.Throttle.Kind != events.Elastic || u.allows || u.source == ofNone || whole == Never || u.listing == events.Denied {
			continue
		}
		if u.reset == Never || whole < u.reset {
			u.reset = whole
		}
	}
}
