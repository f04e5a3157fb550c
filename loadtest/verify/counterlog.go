package verify

import "slices"

// counterLog is what was added to one counter.
type counterLog struct {
	id       int
	shared   bool    // others may have added to it
	all      bool    // it counts denied hits, too
	entries  []int32 // of the counter
	sent     []span  // what may have been added
	unplaced []span  // of that, what has no stamp
	late     []point // increments of the past, from when they were sent on
	lateSeen []point // and from when all know of them on
	lost     []span  // increments of the past of unknown outcome
	sure     []charge
	begun    []point   // hits, from when they were sent on
	ended    []point   // and from when they were answered on
	flight   *inFlight // of both

	resets     []reset
	effective  []bool  // of each reset: what was before it is gone for good
	underWayAt []int64 // of each reset: the cost of what was under way
}

// span is what may have been added, from when it was sent on.
type span struct {
	point
	answered int64
}

// charge is what is known to have been added.
type charge struct {
	point       // from when it was answered on
	sent  int64 // it was not there before
}

func (j *judge) logOf(id int) *counterLog {
	c := &counterLog{id: id, entries: j.of[id], shared: j.counters[id].whole && !j.alone, all: j.contract.countsDenied(j.rules[id])}
	for _, i := range c.entries {
		e := j.log.entries[i]
		sure, maybe := j.charge(id, e)
		switch {
		case e.stamp == 0 && maybe > 0:
			c.unplaced = append(c.unplaced, span{point{e.sent, 0, maybe}, e.answered})
		case sure+maybe > 0:
			c.sent = append(c.sent, span{point{e.sent, e.stamp, sure + maybe}, e.answered})
		}
		if sure > 0 {
			seen := e.answered
			if e.kind == late {
				seen += nanoseconds(closedLife)
			}
			c.sure = append(c.sure, charge{point{seen, e.stamp, sure}, e.sent})
		}
		if e.kind <= batch && e.outcome <= denied && !c.all { // of which nothing is rolled back
			c.begun = append(c.begun, point{e.sent, 0, int64(e.cost)})
			c.ended = append(c.ended, point{e.answered, 0, int64(e.cost)})
		}
		switch {
		case e.kind != late || e.outcome == refused:
		case e.stamp == 0:
			c.lost = append(c.lost, span{point{e.sent, 0, int64(e.cost)}, e.answered})
		default:
			c.late = append(c.late, point{e.sent, e.stamp, int64(e.cost)})
			c.lateSeen = append(c.lateSeen, point{e.answered + nanoseconds(stale), e.stamp, int64(e.cost)})
		}
	}
	j.keepResets(c)
	return c
}

// charge returns what an entry is known to have added to a counter, and what it may have
// added beside that.
func (j *judge) charge(id int, e entry) (sure, maybe int64) {
	cost := int64(e.cost)
	failed, all := false, j.contract.countsDenied(j.rules[id])
	for i, l := range j.contract.limits {
		failed = failed || slices.Contains(j.rules[id], l.rule) && e.onError&(1<<i) != 0
	}
	switch {
	case e.kind == check || e.outcome == refused:
		return 0, 0
	case e.outcome == unknown || failed:
		return 0, cost
	case e.outcome == denied && !all:
		// It is rolled back before it is answered, but not on a server that is away.
		if e.answered-e.sent >= j.timeout || e.onError != 0 || j.losses.unsettled(e) {
			return 0, cost
		}
		return 0, 0
	case j.copies > 1 && j.losses.disturbed(e.sent, e.answered):
		return cost, cost // a copy that was away may be paid twice
	}
	return cost, 0
}

// acknowledged is what is known to have been added, whatever was lost: from when it was
// answered on, or from when it was sent on.
func (c *counterLog) acknowledged(sent bool) (points []point) {
	for _, s := range c.sure {
		p := s.point
		if sent {
			p.time = s.sent
		}
		points = append(points, p)
	}
	return points
}

// most answers questions by what may have been added at the most, and is not gone since: those
// that were asked at these times.
func (c *counterLog) most(questions []question, asked []int64) []int64 {
	return byMoment(questions, func(i int) int64 { return c.goneBefore(asked[i]) }, func(moment int64, some []question) []int64 {
		sums := sumsOf(answeredSince(c.sent, moment), some)
		for i, more := range sumsOf(answeredSince(c.unplaced, moment), anywhere(some)) {
			sums[i] += more
		}
		return sums
	})
}

// byMoment answers questions, those together that are of one moment.
func byMoment(questions []question, momentOf func(i int) int64, answer func(moment int64, some []question) []int64) []int64 {
	sums := make([]int64, len(questions))
	of := map[int64][]int{}
	for i := range questions {
		moment := momentOf(i)
		of[moment] = append(of[moment], i)
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

// answeredSince returns the spans with an answer at that moment or later.
func answeredSince(spans []span, moment int64) (points []point) {
	for _, s := range spans {
		if s.answered >= moment {
			points = append(points, s.point)
		}
	}
	return points
}

// underWay returns the cost of the hits that were, between two times. A hit that is denied
// by overshoot rolls back and tries again with a stamp of its own, so in which seconds they
// were for a moment its answer does not say.
func (c *counterLog) underWay(from, to []question) []int64 {
	sums := sumsOf(c.begun, anywhere(to))
	for i, less := range sumsOf(c.ended, anywhere(from)) {
		sums[i] -= less
	}
	return sums
}

// anywhere asks for what has no second.
func anywhere(questions []question) []question {
	list := make([]question, len(questions))
	for i, q := range questions {
		list[i].time = q.time
	}
	return list
}
