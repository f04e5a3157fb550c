package judge

import (
	"math"
	"slices"
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
	resets  resets

	sure   []add // answered when it is seen
	maybe  []add // all that may have been added, at the most
	late   []add // increments of the past
	flight *flight
}

// collect finds out what was added.
func (c *counter) collect() {
	var hits []add
	for _, i := range c.entries {
		e := c.Log.entries[i]
		sure, maybe := c.charge(e)
		if left := c.left(e, i, c.all); left > 0 {
			if e.Stamp == 0 {
				left -= maybe // it may be in any second
			} else {
				left, maybe = max(left, maybe), 0
			}
			c.maybe = append(c.maybe, c.tries(e, left))
		}
		if sure+maybe > 0 {
			c.maybe = append(c.maybe, at(e.Call, e.Stamp, sure+maybe))
		}
		if sure > 0 {
			seen := e.Call
			if e.Kind == Late {
				seen.Answered += int64(Closed)
			}
			c.sure = append(c.sure, at(seen, e.Stamp, sure))
		}
		if e.isHit() && e.Outcome <= Denied && !c.all { // of which nothing is rolled back
			hits = append(hits, at(e.Call, 0, int64(e.Cost)))
		}
		if e.Kind == Late && e.Outcome != Refused {
			c.late = append(c.late, at(e.Call, e.Stamp, int64(e.Cost)))
		}
	}
	c.flight = newFlight(hits)
	for k := range c.resets {
		r := &c.resets[k]
		// What was acknowledged before the reset was sent is gone for good.
		r.effective = r.Done && !c.missed(c.entries, r.Answered) && !(c.Replicas > 1 && c.losses.disturbed(0, r.Answered))
		r.underWay = c.flight.total(r.Sent, r.Answered+1)
		for _, i := range c.entries {
			if e := c.Log.entries[i]; e.Outcome == Unknown && e.Sent <= r.Answered && e.Answered >= r.Sent {
				r.underWay += int64(e.Cost)
			}
		}
	}
}

// charge returns what an entry is known to have added to the counter, and what it may have
// added beside that.
func (c *counter) charge(e Entry) (sure, maybe int64) {
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
	}
	return cost, 0
}

// least answers questions by what must have been added, and is not gone since: what was sent
// before a server was killed may be, where there is one replica, and before a reset was answered.
func (c *counter) least(questions []question) []int64 {
	sums := byMoment(questions, func(q question) int64 {
		moment := c.resets.keptSince(q.Answered)
		if c.Replicas == 1 { // a call may have met a loss until it was answered
			moment = max(moment, c.losses.lastBefore(q.time+int64(CallTimeout)))
		}
		return moment
	}, func(moment int64, some []question) []int64 {
		return sumsOf(kept(c.sure, func(a add) bool { return a.Sent > moment }), answered, some)
	})
	for i, q := range questions {
		sums[i] = max(sums[i]-c.resets.robbed(q.Answered), 0)
	}
	return sums
}

// most answers questions by what may have been added at the most, and is not gone since.
func (c *counter) most(questions []question) []int64 {
	return byMoment(questions, func(q question) int64 { return c.resets.goneBefore(q.Sent) }, func(moment int64, some []question) []int64 {
		return sumsOf(kept(c.maybe, func(a add) bool { return a.Answered >= moment }), sent, some)
	})
}

func kept(adds []add, keep func(add) bool) []add {
	return slices.DeleteFunc(slices.Clone(adds), func(a add) bool { return !keep(a) })
}

// byMoment answers questions, those together that are of one moment.
func byMoment(questions []question, momentOf func(question) int64, answer func(moment int64, some []question) []int64) []int64 {
	sums := make([]int64, len(questions))
	of := map[int64][]int{}
	for i, q := range questions {
		of[momentOf(q)] = append(of[momentOf(q)], i)
	}
	for moment, indexes := range of {
		some := make([]question, len(indexes))
		for k, i := range indexes {
			some[k] = questions[i]
		}
		for k, sum := range answer(moment, some) {
			sums[indexes[k]] = sum
		}
	}
	return sums
}

// overshoot returns, of a denied hit, at most how much of others, that was rolled back, it can
// have counted. Each second's bucket is read once, and holds no more than was under way at that
// moment. A hit that is denied by overshoot tries again with a stamp of its own, so in which
// seconds it was for a moment its answer does not say.
func (c *counter) overshoot(e Entry) int64 {
	from := e.Sent - remembered
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

// unlimited is above every count.
const unlimited = math.MaxInt64
