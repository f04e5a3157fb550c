package verify

import (
	"cmp"
	"slices"
	"time"
)

const (
	// closedLife is for how long a process may not see what another has changed of the past: a
	// late increment, a reset.
	closedLife = time.Second
	// stale is for how long a denial may tell of that: a cached denial was decided on cached buckets.
	stale = closedLife + remembered
)

// reset is a counter that was forgotten, or may have been in part.
type reset struct {
	sent, answered int64
	counter        int32
	client, target uint16
	done           bool // it was acknowledged
}

// sortResets puts the resets to their counters, in the order of time.
func (j *judge) sortResets() {
	j.resets = make([][]reset, len(j.counters))
	for _, r := range j.log.resets {
		j.resets[r.counter] = append(j.resets[r.counter], r)
	}
	for _, list := range j.resets {
		slices.SortFunc(list, func(a, b reset) int { return cmp.Compare(a.sent, b.sent) })
	}
}

// pending reports whether a copy may get later what it has missed of a counter before a time: a
// reset does not forget that.
func (j *judge) pending(entries []int32, before int64) bool {
	return j.copies > 1 && slices.ContainsFunc(entries, func(i int32) bool {
		return j.log.entries[i].sent < before && j.mayBeLeft(i)
	})
}

// keptSince returns since when what was sent is surely there, for an answer at that time:
// what was under way at a reset may have been forgotten.
func (c *counterLog) keptSince(answered int64) int64 {
	since := int64(-1)
	for _, r := range c.resets {
		if r.sent < answered {
			since = max(since, r.answered)
		}
	}
	return since
}

// goneBefore returns the time up to which what was answered is surely gone, for a question at that time.
func (c *counterLog) goneBefore(asked int64) int64 {
	gone := int64(-1)
	for i, r := range c.resets {
		if c.effective[i] && r.answered+nanoseconds(stale) < asked {
			gone = max(gone, r.sent)
		}
	}
	return gone
}

// robbed returns how much of what came after a reset may be gone: the adds of hits that were
// under way at the reset were forgotten, and then rolled back.
func (c *counterLog) robbed(answered int64) (most int64) {
	since := c.keptSince(answered)
	for i, r := range c.resets {
		if r.sent < answered && r.answered <= since && !c.superseded(i, answered) {
			most += c.underWayAt[i]
		}
	}
	return most
}

// superseded reports whether a later reset, begun before a time, has forgotten what became of
// that one.
func (c *counterLog) superseded(i int, before int64) bool {
	return slices.ContainsFunc(c.resets[i+1:], func(o reset) bool { return o.sent < before && o.sent > c.resets[i].answered && o.done })
}

// keepResets notes the resets of the counter, and what was under way at each.
func (j *judge) keepResets(c *counterLog) {
	c.resets = j.resets[c.id]
	if len(c.resets) == 0 {
		return
	}
	from, to := make([]question, len(c.resets)), make([]question, len(c.resets))
	for i, r := range c.resets {
		from[i], to[i] = question{time: r.sent}, question{time: r.answered + 1}
		// What was acknowledged before the reset was sent is gone for good.
		gone := r.done && !j.pending(c.entries, r.answered) && !(j.copies > 1 && j.losses.disturbed(0, r.answered))
		c.effective = append(c.effective, gone)
	}
	c.underWayAt = c.underWay(from, to)
	for _, i := range c.entries {
		e := j.log.entries[i]
		for k, r := range c.resets {
			if e.outcome == unknown && e.sent <= r.answered && e.answered >= r.sent {
				c.underWayAt[k] += int64(e.cost)
			}
		}
	}
}

// segment returns between which resets an entry was: after the n-th, and wholly. One that was
// under way at a reset is between none.
func (c *counterLog) segment(e entry) (n int, whole bool) {
	for _, r := range c.resets {
		switch {
		case e.answered < r.sent:
			return n, true
		case e.sent <= r.answered:
			return n, false
		}
		n++
	}
	return n, true
}
