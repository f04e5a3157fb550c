package verify

import (
	"math"
	"slices"
)

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
	left     []tries // of which a slow replica may hold more
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

// tries is what the tries of a hit may have left on a slow replica: each has a stamp of its own,
// in these seconds.
type tries struct {
	span
	last int64
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
		if left := j.left(e, i, c.all); left > 0 {
			if e.stamp == 0 {
				left -= maybe // it may be in any second
			} else {
				left, maybe = max(left, maybe), 0
			}
			c.left = append(c.left, j.triesOf(e, left))
		}
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

// left returns what an entry may have left on a slow replica.
func (j *judge) left(e entry, i int32, all bool) int64 {
	switch {
	case j.copies == 1 || e.kind == check || e.outcome == refused:
		return 0
	case e.kind > batch || all: // which are added once
		return int64(e.cost) * min(j.givenUp[i], 1)
	}
	return int64(e.cost) * j.givenUp[i]
}

// triesOf returns the tries of an entry, and so much for what they may have left.
func (j *judge) triesOf(e entry, left int64) tries {
	first, last := j.second(e.sent), j.second(e.answered)
	switch {
	case e.stamp == 0:
	case e.kind > batch:
		first, last = e.stamp, e.stamp // it is never tried again
	default:
		first, last = min(first, e.stamp), max(last, e.stamp)
	}
	return tries{span{point{e.sent, first, left}, e.answered}, last}
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
		c.addLeft(sums, moment, some)
		return sums
	})
}

// addLeft adds to each sum what tries may have left in one of the seconds that its question asks
// for: all that may have in that second or before it, and not before it only.
func (c *counterLog) addLeft(sums []int64, moment int64, questions []question) {
	var first, last []point
	for _, t := range c.left {
		if t.answered >= moment {
			first = append(first, t.point)
			last = append(last, point{t.time, t.last, t.by})
		}
	}
	after := slices.Clone(questions)
	for i := range after {
		after[i].to = math.MaxInt64 - 1
	}
	begun, going, later := sumsOf(first, questions), sumsOf(last, after), sumsOf(first, after)
	for i := range sums {
		sums[i] += begun[i] + going[i] - later[i]
	}
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
