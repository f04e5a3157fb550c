package judge

import (
	"slices"
	"time"
)

// counter is what was added to one counter.
type counter struct {
	*judge
	Counter
	id      int32
	rules   []int   // that count by it
	entries []int32 // that called for it
	looks   []Look
	shared  bool // others may have added to it
	all     bool // it counts denied hits, too
	hurt    bool // a loss was said of it
	lone    bool // one client calls for it, each call when the one before was answered
	resets  resets

	sure   *series // what was added, from when on an answer has to know it
	maybe  *series // all that may have been added, at the most
	late   []add   // increments of the past
	flight *flight
}

// collect finds out what was added.
func (c *counter) collect() {
	var sures, maybes, hits []add
	for _, i := range c.entries {
		e := c.Log.entries[i]
		sure, maybe := c.charge(e, i)
		if c.Replicas > 1 {
			left := c.left(e, i)
			if e.Stamp == 0 {
				left.by -= maybe // it may be in any second
			} else if left.by > 0 {
				left.by, maybe = max(left.by, maybe), 0
			}
			if left.by > 0 {
				maybes = append(maybes, left)
			}
		}
		if maybe > 0 {
			maybes = append(maybes, at(e.Call, e.Sent, e.Stamp, maybe))
		}
		known := e.Answered
		if c.lone {
			known = e.Sent // what follows is sent later, or in its batch comes behind it
		}
		if e.Kind == Late {
			known = e.Answered + int64(Closed)
		}
		if sure > 0 {
			begun := at(e.Call, e.Sent, e.Stamp, sure)
			begun.sure = true
			maybes, sures = append(maybes, begun), append(sures, at(e.Call, known, e.Stamp, sure))
		}
		if e.isHit() && e.Outcome <= Denied && !c.all { // of which nothing is rolled back
			hits = append(hits, at(e.Call, 0, 0, int64(e.Cost)))
		}
		if e.Kind == Late && e.Outcome != Refused {
			c.late = append(c.late, at(e.Call, known, e.Stamp, int64(e.Cost)))
		}
	}
	c.sure, c.maybe, c.flight = newSeries(sures), newSeries(maybes), newFlight(hits)
	for k := range c.resets {
		r := &c.resets[k]
		// What was acknowledged before the reset was sent is gone for good.
		r.effective = r.Done && !c.missed(r.Answered)
		r.underWay = c.flight.total(r.Sent, r.Answered+1)
		for _, i := range c.entries {
			if e := c.Log.entries[i]; e.Outcome == Unknown && e.Sent <= r.Answered && e.Answered >= r.Sent {
				r.underWay += int64(e.Cost)
			}
		}
	}
}

// replaying is how long a hint may wait once it is due, which is twice the timeout after the add.
const replaying = int64(2 * time.Second)

// charge returns what an entry is known to have added to the counter, and what it may have
// added beside that.
func (c *counter) charge(e Entry, i int32) (sure, maybe int64) {
	cost, failed := int64(e.Cost), false
	for i, l := range c.Limits {
		failed = failed || slices.Contains(c.rules, l.Index) && e.OnError&(1<<i) != 0
	}
	switch {
	case e.Kind == Check || e.Outcome == Refused:
		return 0, 0
	case e.Outcome == Unknown || failed:
		return 0, cost
	case e.Outcome == Denied && !c.all:
		// It is rolled back before it is answered, but not on a server that is away.
		if e.took() >= c.Timeout || e.OnError != 0 || c.losses.unsettled(e.Call) {
			return 0, cost
		}
		return 0, 0
	case c.Replicas > 1 && c.losses.disturbed(e.Sent, e.Answered):
		return cost, cost // a replica that was away may get it twice
	case c.Replicas > 1 && c.givenUp[i] > 0 && c.losses.disturbed(e.Sent, e.Answered+2*int64(c.Timeout)+replaying):
		return 0, 2 * cost // the replica that was killed may have had it alone
	}
	return cost, 0
}

// least answers questions by what must have been added, and is not gone since: what was sent
// before a server was killed may be, where there is one replica, and before a reset was answered.
func (c *counter) least(questions []question) []int64 {
	asked := func(i int) (span, int64) {
		q, moment := questions[i].least, c.resets.keptSince(questions[i].Answered)
		if c.Replicas == 1 { // a call may have met a loss until it was answered
			moment = max(moment, c.losses.lastBefore(q.time+int64(CallTimeout)))
		}
		return q, moment
	}
	sums := c.sure.sums(len(questions), asked, func(a add, moment int64) bool { return a.Sent > moment })
	for i, q := range questions {
		sums[i] = max(sums[i]-c.resets.robbed(q.Answered), 0)
		if !c.lone || len(c.late) == 0 {
			continue
		}
		_, moment := asked(i)
		for _, a := range c.sure.adds { // a target knows its own changes of the past at once
			if a.Target == q.Target && a.Sent < q.least.time && q.least.time <= a.time && a.Sent > moment && a.touches(q.least.from, q.least.to) {
				sums[i] += a.by
			}
		}
	}
	return sums
}

// most answers questions by what may have been added at the most, and is not gone since.
func (c *counter) most(questions []question) []int64 {
	asked := func(i int) (span, int64) { return questions[i].most, c.resets.goneBefore(questions[i].Call, c.lone) }
	return c.maybe.sums(len(questions), asked, func(a add, moment int64) bool { return a.Answered >= moment })
}

// overshoot returns, of a denied hit, at most how much of others, that was rolled back, it can
// have counted. Each second's bucket is read once, and holds no more than was under way at that
// moment. A hit that is denied by overshoot tries again with a stamp of its own, so in which
// seconds it was for a moment its answer does not say.
func (c *counter) overshoot(e Entry) int64 {
	from := e.Sent - remembered
	if c.lone { // others are of the same batch
		from = e.Sent
	}
	total := c.flight.total(from, e.Answered)
	if e.Kind != Check && !c.all {
		total -= int64(e.Cost)
	}
	seconds := c.Log.second(e.Answered) - c.Log.second(from) + 1
	return min(total, seconds*c.flight.most(from, e.Answered))
}

// besideLate returns how much was added to the past in those seconds beside an entry, or so
// shortly before that it may know of some buckets as they were and of others as they are.
func (c *counter) besideLate(e Entry, from, to int64) (sum int64) {
	for _, a := range c.late {
		if a.touches(from, to) && a.Sent < e.Answered && a.Answered+stale >= e.Sent {
			sum += a.by
		}
	}
	return sum
}

// known returns the time of whose adds the answer to an entry surely knows. A target repeats a denial
// for a while. A lone caller's it repeats for the same cost in the same second, and until it has
// added something itself.
func (c *counter) known(i int32) int64 {
	e := c.Log.entries[i]
	switch {
	case e.Outcome != Denied:
		return e.Sent
	case !c.lone:
		return e.Sent - remembered
	case c.CountsAll(): // each denial is decided anew
		return e.Sent
	}
	since, entries := e.Sent, c.user(e).entries
	for _, k := range slices.Backward(entries[:slices.Index(entries, i)]) {
		switch o := c.Log.entries[k]; {
		case o.Target != e.Target || o.Kind == Check:
		case o.Stamp != e.Stamp || o.Outcome != Denied:
			return since
		case o.Cost == e.Cost:
			since = o.Sent
		}
	}
	return since
}
