package judge

import (
	"cmp"
	"slices"

	"github.com/counterd/counterd/loadtest/exactlog"
	"github.com/counterd/counterd/loadtest/verify/contract"
)

// limitEval holds what one limit says to what its counter held.
type limitEval struct {
	*counter
	limit     contract.Limit
	at        int // its place in a decision
	held      holding
	questions []question
}

// holding is what a limit holds, by how it counts.
type holding interface {
	// overfull reports whether those hits, which it admitted between two resets, were too many, and that is
	// not excused.
	overfull(entries []int32) bool
	// least answers questions by what must count, and most by what may.
	least(questions []question) []int64
	most(questions []question) []int64
}

// newLimitEval returns it for a limit that counts by the counter.
func newLimitEval(c *counter, limit contract.Limit, at int) *limitEval {
	l := &limitEval{counter: c, limit: limit, at: at}
	switch {
	case limit.Burst > 0:
		l.held = bucketEval{l}
	case limit.Leases:
		l.held = leaseEval{l}
	default:
		l.held = windowEval{l}
	}
	return l
}

// says reports whether a set of limits has this one.
func (l *limitEval) says(set uint64) bool { return set&(1<<l.at) != 0 }

// excused reports whether an entry was decided while counts may be gone, and it was said, or not
// known yet, that the counter had lost something. Counts may be gone where they have one replica and
// servers may die.
func (l *limitEval) excused(e Entry) bool {
	losable := !l.Ours || len(l.losses) > 0 && l.Replicas == 1
	return losable && (l.says(e.Incomplete) || l.losses.unsettled(e.Call))
}

// windows finds each window that held more than the limit admits, by stamps. A reset parts them.
func (l *limitEval) windows() {
	if !l.limit.Bounded() {
		return
	}
	segments := make([][]int32, len(l.resets)+1)
	for _, i := range l.entries {
		e := l.entry(i)
		if !e.takesLeases() || e.Outcome != Admitted || l.says(e.OnError) {
			continue
		}
		n, whole := l.resets.segment(e.Call)
		if !whole {
			l.Findings.Excused.AtResets++
			continue
		}
		segments[n] = append(segments[n], i)
	}
	for _, entries := range segments {
		if l.Findings.Checked.Windows += int64(len(entries)); l.held.overfull(entries) {
			return // the others are mostly the same hits
		}
	}
}

// windowEval counts in windows.
type windowEval struct{ *limitEval }

func (l windowEval) overfull(entries []int32) bool {
	if l.Log.Unstamped {
		return l.surelyOverfull(entries)
	}
	var log exactlog.Log
	slices.SortStableFunc(entries, func(a, b int32) int { return cmp.Compare(l.entry(a).Stamp, l.entry(b).Stamp) })
	for _, i := range entries {
		log.Add(l.entry(i).Stamp, l.taken(i))
	}
	for w := range log.Overfull(l.limit.Ceiling, l.limit.Begins) {
		if !l.isExcused(l.inWindow(w), entries[w.First:w.Last]) {
			return true
		}
	}
	return l.limit.Slides() && l.surelyOverfull(entries)
}

// longest returns the longest window that holds that millisecond, and begins with it or what is rounded to it.
func (l windowEval) longest(from int64) Times {
	switch second := from / 1000; {
	case l.limit.Slides():
		return Times{from, from + l.limit.Length*1000 - 1}
	case l.limit.Tiles():
		return Seconds(l.limit.Windows().Around(second))
	default:
		first := second / l.limit.Step * l.limit.Step
		return Seconds(first, first+l.limit.Step+l.limit.Length-2)
	}
}

// surelyOverfull finds the same of windows that slide by milliseconds, and of hits whose answers tell no stamps: it
// counts hits that were surely stamped in a window.
func (l windowEval) surelyOverfull(entries []int32) bool {
	slices.SortStableFunc(entries, func(a, b int32) int {
		return cmp.Compare(l.stamped(l.entry(a)).First, l.stamped(l.entry(b)).First)
	})
	for n, first := range entries {
		window := l.longest(l.stamped(l.entry(first)).First)
		w, hits := exactlog.Window{From: window.First / 1000, To: window.Last / 1000}, []int32(nil)
		for _, i := range entries[n:] {
			e := l.entry(i)
			at := l.stamped(e)
			if at.First > window.Last {
				break
			}
			if at.Last <= window.Last {
				w.Sum, hits = w.Sum+l.taken(i), append(hits, i)
			}
		}
		if w.Sum > l.limit.Ceiling && !l.isExcused(l.inWindow(w), hits) {
			return true
		}
	}
	return false
}

// excess is a time in which more was admitted than the most that the limit admits then.
type excess struct {
	exactlog.Window
	most int64
	time string // in words
}

func (l windowEval) inWindow(w exactlog.Window) excess {
	return excess{w, l.limit.Ceiling, "the " + l.limit.WindowName() + " of " + w.String()}
}

// isExcused reports whether such an excess, of these hits, is excused, and counts it; else it blames it.
func (l *limitEval) isExcused(w excess, hits []int32) bool {
	excused, most, strict := &l.Findings.Excused, w.most, w.Sum
	for _, i := range hits {
		if e := l.entry(i); l.excused(e) {
			strict -= l.taken(i)
		}
	}
	robbed := l.resets.robbed(l.entry(hits[0]).Sent) + l.strayed(l.entry(hits[len(hits)-1]).Answered)
	switch {
	case strict > most+robbed, l.Ours && w.Sum > most*(1+l.losses.within(w.From, w.To, l.Log.second))+robbed:
		l.blame(Violation{Check: Windows, Limit: l.limit.Name}, l.id, only(hits...),
			"%d admitted in %s, and %s admits %d", w.Sum, w.time, l.limit.Name, most)
		return false
	case strict == w.Sum:
		excused.AfterResets++
	default:
		excused.Windows++
		excused.MostBeyond = max(excused.MostBeyond, w.Sum-most)
	}
	return true
}

// answers holds the decisions to the log.
func (l *limitEval) answers() {
	for _, i := range l.entries {
		if e := l.entry(i); e.Outcome <= Denied && !l.says(e.OnError) {
			l.decided(i, e)
			l.waits(i, e)
		}
	}
	least, most := l.held.least(l.questions), l.held.most(l.questions)
	for i, q := range l.questions {
		q.then(least[i], most[i])
	}
}

// decided holds a count, and a denial. An admitted hit counts no less than what had been
// acknowledged before it; a hit is denied only if it does not fit with all that may have been counted
// before its answer. Of a lone caller's decisions both are known.
func (l *limitEval) decided(i int32, e Entry) {
	counts := (l.lone || e.isHit() && e.Outcome == Admitted) && !l.excused(e)
	denies := e.Outcome == Denied && l.says(e.Denies) && int64(e.Cost) <= l.limit.Ceiling && !l.shared // which could be otherwise
	if e.Kind > Check || !counts && !denies {
		return
	}
	q := question{Call: e.Call, denied: e.Outcome == Denied}
	least, most := l.window(e, 0)
	if counts {
		q.least = span{l.knows(i), least}
		at := l.stamped(e).First / 1000
		q.least.Last = Seconds(contract.Outward(at, at, l.limit.Step)).Last
	}
	if l.lone || denies {
		q.most = span{e.Answered, most}
		if e.Outcome == Admitted && !l.isOvertaken(l.user(e), e) {
			q.most.time = e.Sent + 1 // by what comes behind it in its batch it is not changed
		}
	}
	own := int64(0)
	if e.Kind != Check && (e.Outcome == Admitted || l.all) {
		own = int64(e.Cost)
	}
	q.then = func(least, most int64) {
		if counts {
			l.counted(i, q, own, least+own, most)
		}
		if denies {
			l.denied(i, most-own)
		}
	}
	if counts && l.Rule.Log && l.says(e.Inexact) { // a denial is repeated beyond its second, with the count that it had
		count := q
		count.most.First -= remembered / 1e6
		count.then = func(least, most int64) { l.counted(i, count, own, least+own, most) }
		counts = false
		l.questions = append(l.questions, count)
	}
	l.questions = append(l.questions, q)
}

// counted holds the count in an answer to the log.
func (l *limitEval) counted(i int32, q question, own, least, most int64) {
	e, got := l.entry(i), l.Log.countsOf(i)[l.at]
	l.Findings.Checked.Counts++
	if !l.lone {
		most = unlimited
	} else {
		if now := q; q.least.time < e.Sent && least <= got && got < most {
			now.least.time = e.Sent
			if got < l.held.least([]question{now})[0]+own {
				l.marks[i].repeated = true
			}
		}
		if e.Outcome == Denied {
			most += l.overshoot(e)
		}
		if least != most && (l.limit.Burst == 0 || most-least > 1) { // in which millisecond a token returned
			l.marks[i].vague = true
		}
	}
	if got < least || got > most && !l.says(e.Inexact) {
		l.blame(Violation{Check: Counts, Limit: l.limit.Name}, l.id, l.before(i),
			"the answer to a hit counts %d in %s, and by the log it is %s", got, l.limit.WindowName(), between(least, most))
	}
}

// queueShare is the share of the timeout for which a hit waits in its queue, as the limiter has it wait: then it goes
// beside the hits ahead of it, as on a busy machine.
const queueShare = 8

// denied holds a denial to the most that the limit can have counted beside it.
func (l *limitEval) denied(i int32, most int64) {
	e := l.entry(i)
	l.Findings.Checked.Denials++
	switch room := l.limit.Ceiling - int64(e.Cost); {
	case most > room:
	case most+l.overshoot(e) > room && !(l.Queued && l.user(e).Role == Burst && e.took() < l.Timeout/queueShare):
		l.Findings.Excused.Overshoot++
	default:
		l.blame(Violation{Check: Denials, Limit: l.limit.Name}, l.id, l.before(i),
			"a cost of %d is denied, and at most %d of %d were counted in the %s before", e.Cost, most, l.limit.Ceiling, l.limit.WindowName())
	}
}

// deniedByWhole reports whether an enforced limit of the whole event denies.
func (l *limitEval) deniedByWhole(e Entry) bool {
	for i, other := range l.Limits {
		if e.Denies&(1<<i) != 0 && !other.Shadow && other.Whole() {
			return true
		}
	}
	return false
}

// before returns an entry and what it may have counted.
func (l *limitEval) before(i int32) func() []int32 {
	e := l.entry(i)
	return l.which(func(k int32, o Entry) bool {
		return k == i || o.Sent < e.Answered && o.Stamp >= e.Stamp-l.limit.Length && o.Stamp <= e.Stamp+contract.Grace && (o.Outcome != Denied || l.all) && o.Kind != Check
	})
}

// waits finds a denial with a retry_after before the limit can have room: what had been
// acknowledged before has not left its window by then. And it notes whether it has a
// reason: a second sooner there was no room, with all that may have been counted.
func (l *limitEval) waits(i int32, e Entry) {
	// One that counts what it let in and others denied has to have room for it again.
	again := l.limit.CountAll && e.Kind != Check
	if l.limit.Shadow || e.Outcome != Denied || !l.says(e.Denies) && !again || e.RetryAfter < 1 {
		return
	}
	mark := &l.marks[i]
	if l.limit.Elastic {
		// It has room as soon as the whole event has. What denies with it is held by itself.
		mark.waits = mark.waits || !l.deniedByWhole(e)
		return
	}
	excused := l.excused(e)
	before := int64(e.RetryAfter) - 1
	if l.Rule.Log && l.Log.during(e.Call, l.Skew).First < e.Stamp*1000 { // it waits from a moment that may be before its stamp
		before--
	}
	_, sooner := l.window(e, before)
	q := question{Call: e.Call, denied: true, most: span{e.Answered, sooner}}
	if !excused {
		then, _ := l.window(e, int64(e.RetryAfter))
		q.least = span{l.knows(i), then}
	}
	q.then = func(least, most int64) {
		if own, _ := l.charge(e, i); l.stamped(e).First >= q.least.First {
			least += own // where denied hits are counted
		}
		if beyond := least + int64(e.Cost) - l.limit.Ceiling; !excused && beyond > 0 {
			l.tooSoon(i, least, beyond)
		}
		// Others were stamped while it was under way, and by clocks that differ by less than the grace.
		if latest := e.Stamp + contract.Grace + contract.Seconds(e.took()) + 1; l.limit.Burst > 0 || q.most.First <= latest*1000+999 {
			most += l.overshoot(e)
		}
		mark.waits = mark.waits || l.shared || most+int64(e.Cost) > l.limit.Ceiling
	}
	l.questions = append(l.questions, q)
}

// tooSoon finds a retry_after wrong at which the cost is so much beyond what the limit admits. The
// denial may not know of a late increment beside it, or so shortly before that it may know of some
// buckets as they were and of others as they are.
func (l *limitEval) tooSoon(i int32, least, beyond int64) {
	e := l.entry(i)
	_, beside := l.window(e, 0)
	for _, o := range l.late {
		if !l.lone && (o.Stamp == 0 || beside.First <= o.Stamp*1000 && o.Stamp*1000 <= beside.Last) && o.Sent < e.Answered && o.Answered+stale >= e.Sent {
			beyond -= int64(o.Cost)
		}
	}
	if beyond <= 0 {
		l.Findings.Excused.Late++
		return
	}
	l.blame(Violation{Check: RetryAfter, Limit: l.limit.Name}, l.id, only(i),
		"a cost of %d has a retry_after of %ds, and by the log %s then has at least %d of %d", e.Cost, e.RetryAfter, l.limit.Name, least, l.limit.Ceiling)
}
