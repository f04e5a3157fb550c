package judge

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/counterd/counterd/loadtest/exactlog"
	"github.com/counterd/counterd/loadtest/verify/contract"
)

// windows finds those of a limit that held more than it admits, by stamps.
func (c *counter) windows(at int) {
	l := c.Limits[at]
	if !l.Bounded() {
		return
	}
	segments := make([][]int32, len(c.resets)+1)
	for _, i := range c.entries {
		e := c.Log.entries[i]
		if !e.isHit() || e.Outcome != Admitted || e.OnError&(1<<at) != 0 {
			continue
		}
		n, whole := c.resets.segment(e.Call)
		if !whole {
			c.Findings.Excused.AtResets++
			continue
		}
		segments[n] = append(segments[n], i)
	}
	for _, entries := range segments {
		if c.overfull(at, entries) {
			return // the others are mostly the same hits
		}
	}
}

// overfull finds the windows of those hits, which no reset has parted, that held more than a
// limit admits. It reports whether there is one that is not excused.
func (c *counter) overfull(at int, entries []int32) bool {
	l, excused := c.Limits[at], &c.Findings.Excused
	var log exactlog.Log
	slices.SortStableFunc(entries, func(a, b int32) int { return cmp.Compare(c.Log.entries[a].Stamp, c.Log.entries[b].Stamp) })
	for _, i := range entries {
		log.Add(c.Log.entries[i].Stamp, int64(c.Log.entries[i].Cost))
	}
	c.Findings.Checked.Windows += int64(log.Len())
	for w := range log.Overfull(l.Ceiling, l.Length, l.Step) {
		hits, strict := entries[w.First:w.Last], w.Sum
		for _, i := range hits {
			if e := c.Log.entries[i]; c.excused(e, at) {
				strict -= int64(e.Cost)
			}
		}
		robbed := c.resets.robbed(c.Log.entries[hits[0]].Sent)
		switch {
		case strict > l.Ceiling+robbed, c.Ours && w.Sum > l.Ceiling*(1+c.losses.within(w.From, w.To, c.Log.second))+robbed:
			c.blame(Violation{Check: Windows, Limit: l.Name}, c.id, only(hits...),
				"%d admitted in the %s of %s, and %s admits %d", w.Sum, l.Window, w, l.Name, l.Ceiling)
			return true
		case strict == w.Sum:
			excused.AfterResets++
		default:
			excused.Windows++
			excused.MostBeyond = max(excused.MostBeyond, w.Sum-l.Ceiling)
		}
	}
	return false
}

// decisions holds the counts and the denials of a limit to the log. An admitted hit counts no less
// than what had been acknowledged before it; a hit is denied only if it does not fit with all that
// may have been counted before its answer. Of a lone caller's decisions both are known.
func (c *counter) decisions(at int) {
	l := c.Limits[at]
	var questions []question
	for _, i := range c.entries {
		e := c.Log.entries[i]
		if e.Kind > Check || e.Outcome > Denied || e.OnError&(1<<at) != 0 {
			continue
		}
		q := question{Call: e.Call, entry: i}
		if (c.lone || e.isHit() && e.Outcome == Admitted) && !c.excused(e, at) {
			from, to := contract.Outward(e.Stamp-l.Length+1, e.Stamp, l.Step)
			q.least = span{c.known(i), from, to}
		}
		if c.lone || c.unfit(e, at) {
			from, to := l.WindowAt(e.Stamp)
			q.most = span{e.Answered, from, to}
			if c.lone && e.Outcome == Admitted {
				q.most.time = e.Sent + 1 // by what comes behind it in its batch it is not changed
			}
		}
		if q.least != q.most {
			questions = append(questions, q)
		}
	}
	leasts, mosts := c.least(questions), c.most(questions)
	for k, q := range questions {
		e, own := c.Log.entries[q.entry], int64(0)
		if e.Kind != Check && (e.Outcome == Admitted || c.all) {
			own = int64(e.Cost)
		}
		if q.least != (span{}) {
			c.counted(at, q, own, leasts[k]+own, mosts[k])
		}
		if c.unfit(e, at) {
			c.denied(at, q.entry, mosts[k]-own)
		}
	}
}

// unfit reports whether a limit says that an entry does not fit, which could be otherwise.
func (c *counter) unfit(e Entry, at int) bool {
	return e.Outcome == Denied && e.Denies&^e.OnError&(1<<at) != 0 && int64(e.Cost) <= c.Limits[at].Ceiling && !c.shared
}

// counted holds the count in an answer to the log.
func (c *counter) counted(at int, q question, own, least, most int64) {
	e, l, got := c.Log.entries[q.entry], c.Limits[at], c.Log.countsOf(q.entry)[at]
	c.Findings.Checked.Counts++
	if !c.lone {
		most = unlimited
	} else {
		if now := q; q.least.time < e.Sent && least <= got && got < most {
			now.least.time = e.Sent
			if got < c.least([]question{now})[0]+own {
				c.marks[q.entry].repeated = true
			}
		}
		if e.Outcome == Denied {
			most += c.overshoot(e)
		}
		if least != most {
			c.marks[q.entry].vague = true
		}
	}
	if got < least || got > most && e.Inexact&(1<<at) == 0 {
		c.blame(Violation{Check: Counts, Limit: l.Name}, c.id, c.before(q.entry, l),
			"the answer to a hit counts %d in %s, and by the log it is %s", got, l.Window, between(least, most))
	}
}

// denied holds a denial to the most that its limit can have counted beside it.
func (c *counter) denied(at int, i int32, most int64) {
	l, e := c.Limits[at], c.Log.entries[i]
	c.Findings.Checked.Denials++
	switch room := l.Ceiling - int64(e.Cost); {
	case l.Elastic && e.OnError == 0 && !c.deniedByWhole(e, true):
		c.blame(Violation{Check: Denials, Limit: l.Name}, c.id, only(i), "a cost of %d is denied, and the whole event has room for what is elastic", e.Cost)
	case most > room:
	case most+c.overshoot(e) > room && !(c.Queued && c.user(e).Role == Burst):
		c.Findings.Excused.Overshoot++
	default:
		c.blame(Violation{Check: Denials, Limit: l.Name}, c.id, c.before(i, l),
			"a cost of %d is denied, and at most %d of %d were counted in the %s before", e.Cost, most, l.Ceiling, l.Window)
	}
}

// before returns an entry and what it may have counted in a limit.
func (c *counter) before(i int32, l contract.Limit) func() []int32 {
	e := c.Log.entries[i]
	return c.which(func(k int32, o Entry) bool {
		return k == i || o.Sent < e.Answered && o.Stamp > e.Stamp-l.Length && o.Stamp <= e.Stamp+contract.Grace && (o.Outcome != Denied || c.all) && o.Kind != Check
	})
}

// which finds such entries.
func (c *counter) which(such func(i int32, e Entry) bool) func() []int32 {
	return func() (list []int32) {
		for _, i := range c.entries {
			if such(i, c.Log.entries[i]) {
				list = append(list, i)
			}
		}
		return list
	}
}

// waits finds the denials with a retry_after before one limit can have room: what had been
// acknowledged before has not left its window by then. And it notes which have a
// reason: a second sooner there was no room, with all that may have been counted.
func (c *counter) waits(at int) {
	l := c.Limits[at]
	var questions []question
	for _, i := range c.entries {
		e := c.Log.entries[i]
		// One that counts what it let in and others denied has to have room for it again.
		again := l.CountAll && e.Kind != Check
		if l.Shadow || e.Outcome != Denied || e.OnError&(1<<at) != 0 || e.Denies&(1<<at) == 0 && !again || e.RetryAfter < 1 {
			continue
		}
		if l.Elastic {
			// It has room as soon as the whole event has. What denies with it is held by itself.
			c.marks[i].waits = c.marks[i].waits || !c.deniedByWhole(e, false)
			continue
		}
		due := e.Stamp + int64(e.RetryAfter)
		q, from, to := question{Call: e.Call, entry: i}, int64(0), int64(0)
		if !c.excused(e, at) {
			from, to = l.WindowAt(due)
			q.least = span{c.known(i), from, to}
		}
		from, to = l.WindowAt(due - 1)
		q.most = span{e.Answered, from, to}
		questions = append(questions, q)
	}
	leasts, mosts := c.least(questions), c.most(questions)
	for k, q := range questions {
		e, most := c.Log.entries[q.entry], mosts[k]
		least := leasts[k]
		if own, _ := c.charge(e, q.entry); e.Stamp >= q.least.from {
			least += own // where denied hits are counted
		}
		if q.least != (span{}) && least+int64(e.Cost) > l.Ceiling {
			if from, to := l.WindowAt(e.Stamp); !c.lone && least+int64(e.Cost) <= l.Ceiling+c.besideLate(e, from, to) {
				c.Findings.Excused.Late++
			} else {
				c.blame(Violation{Check: RetryAfter, Limit: l.Name}, c.id, only(q.entry),
					"a cost of %d has a retry_after of %ds, and by the log %s then has at least %d of %d", e.Cost, e.RetryAfter, l.Name, least, l.Ceiling)
			}
		}
		// Others were stamped while it was under way, and by clocks that differ by less than the grace.
		if latest := e.Stamp + contract.Grace + contract.Seconds(e.took()) + 1; q.most.from <= latest {
			most += c.overshoot(e)
		}
		if c.shared || most+int64(e.Cost) > l.Ceiling {
			c.marks[q.entry].waits = true
		}
	}
}

// finish counts the decisions that were known to the last number, and finds the denials with a later
// retry_after than any limit has a reason for.
func (j *judge) finish() {
	for n, e := range j.Log.entries {
		i := int32(n)
		if j.user(e).Role == Quiet && e.Kind <= Check && e.Outcome <= Denied {
			j.Findings.Checked.Lone++
			if !j.marks[i].vague && e.OnError == 0 {
				j.Findings.Checked.Predictions++
			}
		}
		if j.marks[i].repeated {
			j.Findings.Excused.Repeated++
		}
		if e.Outcome != Denied || e.RetryAfter < 1 {
			continue
		}
		j.Findings.Checked.Waits++
		// A search for the moment that is cut short finds one that is late.
		if j.marks[i].waits || e.RetryAfter == 1 || e.OnError != 0 || e.took() >= j.Timeout || j.losses.unsettled(e.Call) || j.losses.disturbed(e.Sent, e.Answered) {
			continue
		}
		j.blame(Violation{Check: RetryAfter}, j.user(e).Counters[0], only(i),
			"a cost of %d has a retry_after of %ds, and by the log it fits all limits a second before", e.Cost, e.RetryAfter)
	}
}

// checkLooks holds counts and histories to the log.
func (c *counter) checkLooks() {
	var questions []question
	for _, k := range c.looks {
		questions = append(questions, question{k.Call, 0, span{k.Sent, k.From, k.To}, span{k.Answered, k.From, k.To}})
	}
	c.Findings.Checked.Counts += int64(len(c.looks))
	least, most := c.least(questions), c.most(questions)
	before := func(i int) (span, int64) { return questions[i].least, 0 }
	after := func(i int) (span, int64) { return questions[i].most, 0 }
	told := c.sure.sums(len(questions), before, func(add, int64) bool { return true })
	begun := c.maybe.sums(len(questions), after, func(a add, _ int64) bool { return a.sure })
	for i, k := range c.looks {
		underWay := c.flight.total(k.Sent, k.Answered)
		most := most[i] + underWay
		if c.shared {
			most = unlimited
		}
		switch {
		case k.Count < least[i] && !c.Ours && c.hurt:
			c.Findings.Excused.LowCounts++
		case k.Count < least[i] || k.Count > most:
			c.miscounted(k, between(least[i], most))
		case len(c.resets) > 0: // the reset may have forgotten what came before
		case k.Count < told[i]:
			c.Findings.Excused.LowCounts++
		case k.Count > begun[i] && underWay == 0:
			c.Findings.Excused.HighCounts++
		}
	}
}

func (c *counter) miscounted(k Look, want string) {
	what := "a count"
	if k.Bucket {
		what = "a bucket of the history"
	}
	look := c.Log.Event(Entry{Call: k.Call, Kind: Count}, nil)
	look.Answer = fmt.Sprint("count ", k.Count)
	c.blame(Violation{Check: Counts, Events: []Event{look}}, c.id, c.which(func(_ int32, e Entry) bool {
		unplaced := e.Stamp == 0 && c.Log.second(e.Sent) <= k.To && c.Log.second(e.Answered) >= k.From
		underWay := e.Sent < k.Answered && e.Answered > k.Sent
		placed := (e.Outcome != Denied || c.all) && e.Stamp >= k.From && e.Stamp <= k.To
		return e.Kind != Check && (unplaced || underWay || placed)
	}), "%s of %s to %s is %d, and by the log it is %s", what,
		time.Unix(k.From, 0).UTC().Format(time.DateTime), time.Unix(k.To, 0).UTC().Format(time.DateTime), k.Count, want)
}

// unlimited is above every count.
const unlimited = math.MaxInt64

// between are the counts from the least to the most, in words.
func between(least, most int64) string {
	switch most {
	case least:
		return fmt.Sprint(least)
	case unlimited:
		return fmt.Sprintf("at least %d", least)
	}
	return fmt.Sprintf("%d to %d", least, most)
}
