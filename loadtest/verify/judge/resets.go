package judge

import (
	"cmp"
	"slices"
	"time"
)

// CallTimeout is the longest that a call takes.
const CallTimeout = 10 * time.Second

// Closed is for how long a process may not see what another has changed of the past: a
// late increment, a reset.
const Closed = time.Second

const (
	// remembered is how long a denial is.
	remembered = int64(time.Second)
	// stale is for how long a denial may tell of a change of the past: a cached denial was decided on
	// cached buckets.
	stale = int64(Closed) + remembered
)

// resets are those of a counter, in the order of time.
type resets []Reset

// sortResets puts the resets to their counters.
func (j *judge) sortResets() {
	slices.SortStableFunc(j.Log.resets, func(a, b Reset) int { return cmp.Compare(a.Sent, b.Sent) })
	named := map[string][]*counter{}
	for _, c := range j.counters {
		named[c.Name] = append(named[c.Name], c)
	}
	for _, r := range j.Log.resets {
		for _, c := range named[j.counters[r.Counter].Name] {
			c.resets = append(c.resets, r)
		}
	}
}

// collectReset finds out what a reset has forgotten.
func (c *counter) collectReset(r *Reset) {
	// What was acknowledged before the reset was sent is gone for good.
	r.effective = r.Done && !c.missed(r.Call)
	r.underWay = c.flight.total(r.Sent, r.Answered+1)
	for _, i := range c.entries {
		if e := c.Log.entries[i]; e.Outcome == Unknown && e.Sent <= r.Answered && e.Answered >= r.Sent {
			r.underWay += int64(e.Cost)
		}
	}
}

// missed reports whether a replica may get after a reset what it has missed before: the reset of buckets
// does not forget that.
func (c *counter) missed(reset Call) bool {
	return c.Replicas > 1 && !c.Rule.Log && (c.losses.disturbed(0, reset.Answered) || slices.ContainsFunc(c.entries, func(i int32) bool {
		e := c.Log.entries[i]
		return e.Sent < reset.Answered && (e.Outcome == Unknown || c.givenUp[i] > 0)
	}))
}

// beside reports whether a reset was under way during a call: it may have forgotten a rollback alone.
func (rs resets) beside(c Call) bool {
	return slices.ContainsFunc(rs, func(r Reset) bool { return c.Sent <= r.Answered && c.Answered >= r.Sent })
}

// goneBefore returns the time up to which what was answered is surely gone, for a call. A target
// that a lone caller calls knows its own resets at once.
func (rs resets) goneBefore(c Call, lone bool) int64 {
	gone := int64(-1)
	for _, r := range rs {
		unknown := stale
		switch {
		case lone && r.Target == c.Target:
			unknown = -1
		case lone:
			unknown = int64(Closed)
		}
		if r.effective && r.Answered+unknown < c.Sent {
			gone = max(gone, r.Sent)
		}
	}
	return gone
}

// robbed returns how much of what came after a reset may be gone: the adds of hits that were
// under way at the reset were forgotten, and then rolled back. A later reset has forgotten that.
func (rs resets) robbed(answered int64) (most int64) {
	for i, r := range rs {
		superseded := func(o Reset) bool { return o.Sent < answered && o.Sent > r.Answered && o.Done }
		if r.Sent < answered && !slices.ContainsFunc(rs[i+1:], superseded) {
			most += r.underWay
		}
	}
	return most
}

// segment returns between which resets a call was: after the n-th, and wholly. One that was
// under way at a reset is between none.
func (rs resets) segment(c Call) (n int, whole bool) {
	for _, r := range rs {
		if c.Sent <= r.Answered {
			return n, c.Answered < r.Sent
		}
		n++
	}
	return n, true
}
