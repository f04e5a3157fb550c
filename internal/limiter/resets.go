package limiter

import (
	"slices"
	"time"

	"github.com/counterd/counterd/events"
)

// leaves returns how long after its stamp a hit has left the limit's window, or in what time an empty token
// bucket is full.
func (u *limitEval) leaves() time.Duration {
	limit, stamp := &u.window.limit, u.counter.moment.Stamp
	if windows := limit.Windows(); windows.Algorithm.Around != nil {
		_, last := windows.Around(stamp)
		return time.Duration(last+1-stamp) * time.Second
	}
	return limit.Span(u.window.ceiling)
}

// mayBeInOwnWay reports whether the hit fitted the limit, and may not any more: another limit
// has denied it, and this one's counter counts it all the same.
func (h *hit) mayBeInOwnWay(u *limitEval) bool {
	return h.isDenied() && h.path == adding && u.counter.name.countAll && h.addsTo(u.counter) > 0 && u.enforced() && u.counter.err == nil
}

// resets are the searches for when hits fit that do not fit now.
type resets struct {
	searches []resetSearch
	counters []*counterState
}

// resetSearch is the search for the reset of one limit.
type resetSearch struct {
	limit *limitEval
	index int // among those of its session
}

// findResets finds, for each limit that a hit does not fit, when it will.
func (f *batch) findResets() {
	var r resets
	for _, h := range f.hits.handedOut() {
		if h.isWeighed() && h.verdict != asBefore {
			r.begin(h)
		}
	}
	if len(r.counters) > 0 {
		f.travel(r.counters, f.l.now(), false)
	}
	for _, s := range r.searches {
		session := s.limit.counter.open()
		s.limit.reset, s.limit.mayFit = session.Wait(s.index), session.MayFit(s.index)
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
		case u.allows && !h.mayBeInOwnWay(u):
		case h.costOn(u.counter) > u.window.ceiling || u.listing == events.Denied:
			u.reset = events.Never
		case u.source == ofNone:
		case u.cached != nil:
			u.reset, u.mayFit = u.cached.resetAt(u.counter.moment.Now), u.cached.mayFit
		case u.sourceNow().failed() && !u.source.failed():
			// The store has denied it and has failed since, for others.
			u.reset = u.leaves()
		default:
			r.search(h, u)
		}
	}
}

// search begins the search for one limit. A hit that retries will look again: till then what is
// known will do.
func (r *resets) search(h *hit, u *limitEval) {
	c := u.counter
	index, full := c.open().Search(u.window.index, c.taken, h.costOn(c))
	switch {
	case !full && u.allows:
	case !full:
		u.reset = max(c.engine.Tick(), time.Millisecond) // what was in its way when it looked has gone meanwhile
	case h.retries:
		u.reset = c.open().Wait(index)
	default:
		r.searches = append(r.searches, resetSearch{u, index})
		if !slices.Contains(r.counters, c) {
			r.counters = append(r.counters, c)
		}
	}
}

// stretch lets a hit on an elastic limit in as soon as the whole event has room for
// it, if that is before the limit itself has.
func (h *hit) stretch() {
	whole := time.Duration(0)
	for i := range h.limits {
		u := &h.limits[i]
		u.own = u.reset
		if len(u.window.rule.Per) == 0 && !u.allows {
			whole = max(whole, u.reset)
		}
	}
	for i := range h.limits {
		u := &h.limits[i]
		if u.window.rule.Throttle.Kind != events.Elastic || u.allows || u.source == ofNone || u.listing == events.Denied {
			continue
		}
		u.reset = min(u.reset, whole)
	}
}
