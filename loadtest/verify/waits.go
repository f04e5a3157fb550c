package verify

import (
	"fmt"
	"time"
)

// waits finds the denials with a retry_after before one limit can have room:
// what had been acknowledged before has not left its window by then. And it notes which were
// told so for a reason: a second sooner there was no room, with all that may have been counted.
func (j *judge) waits(c *counterLog, at int) {
	l := j.contract.limits[at]
	if !j.contract.enforced(l) {
		return
	}
	var told, bounded []int32
	var then, sooner []question
	var answered, sent []int64
	for _, i := range c.entries {
		e := j.log.entries[i]
		// One that counts what it let in and others denied has to have room for it again.
		counts := j.contract.ruleOf(l).countAll && e.kind != check
		if e.outcome != denied || e.onError&(1<<at) != 0 || e.denies&(1<<at) == 0 && !counts || e.retryAfter < 1 {
			continue
		}
		if j.contract.ruleOf(l).elastic {
			// It has room as soon as the whole event has. What denies with it is held by itself.
			j.reasons[i] = j.reasons[i] || !j.deniedByAll(e)
			continue
		}
		if !j.losable() || !j.excuses(e, at) {
			from, to := j.contract.windowAt(l, e.stamp+int64(e.retryAfter))
			told = append(told, i)
			then, answered = append(then, question{e.sent - nanoseconds(remembered), from, to}), append(answered, e.answered)
		}
		from, to := j.contract.windowAt(l, e.stamp+int64(e.retryAfter)-1)
		bounded = append(bounded, i)
		sooner, sent = append(sooner, question{e.answered, from, to}), append(sent, e.sent)
	}
	beside := c.besideLate(j, l, told)
	for k, least := range j.least(c, then, answered) {
		e, room := j.log.entries[told[k]], l.ceiling-least
		switch {
		case int64(e.cost) <= room:
		case int64(e.cost) <= room+beside[k]:
			j.excused.Late++
		default:
			j.findings.add(Violation{
				Check: CheckRetryAfter, Feature: j.feature(c.id), Limit: l.name, Events: []Event{j.event(told[k])},
				Text: fmt.Sprintf("%s: a cost of %d is told to come again in %ds, and by the log %s then has at least %d of %d",
					j.name(c.id), e.cost, e.retryAfter, l.name, least, l.ceiling),
			})
		}
	}
	most, overshoot := c.most(sooner, sent), c.inTheWay(j, bounded)
	for k, i := range bounded {
		e, others := j.log.entries[i], overshoot[k]
		if latest := e.stamp + grace + (e.answered-e.sent)/nanoseconds(time.Second) + 1; sooner[k].from > latest {
			others = 0 // they were stamped while it was under way, and by clocks that differ by less than the grace
		}
		if c.shared || most[k]+others+int64(e.cost) > l.ceiling {
			j.reasons[i] = true
		}
	}
}

// tooLong finds the denials with a later retry_after than any limit has a reason for.
func (j *judge) tooLong() {
	for n, e := range j.log.entries {
		i := int32(n)
		if e.outcome != denied || e.retryAfter < 1 {
			continue
		}
		j.checked.Waits++
		// A search for the moment that is cut short finds one that is late.
		if j.reasons[i] || e.retryAfter == 1 || e.onError != 0 || e.answered-e.sent >= j.timeout || j.unsettled(e) || j.disturbed(e.sent, e.answered) {
			continue
		}
		j.findings.add(Violation{
			Check: CheckRetryAfter, Feature: j.feature(int(j.users.who(e.who).counters[0])), Events: []Event{j.event(i)},
			Text: fmt.Sprintf("a cost of %d is told to come again in %ds, and by the log it fits all limits a second before", e.cost, e.retryAfter),
		})
	}
}

// deniedByAll reports whether a limit of the whole event denies.
func (j *judge) deniedByAll(e entry) bool {
	for i, l := range j.contract.limits {
		if e.denies&(1<<i) != 0 && j.contract.enforced(l) && j.contract.whole(l) {
			return true
		}
	}
	return false
}

// besideLate returns, of each of those entries, how much was added to the past in a limit's window
// beside it, or so shortly before that it may know of some buckets as they were and of others as
// they are.
func (c *counterLog) besideLate(j *judge, l limit, entries []int32) []int64 {
	begun, seen := make([]question, len(entries)), make([]question, len(entries))
	for k, i := range entries {
		e := j.log.entries[i]
		from, to := j.contract.windowAt(l, e.stamp)
		begun[k], seen[k] = question{e.answered, from, to}, question{e.sent, from, to}
	}
	list := sumsOf(c.late, begun)
	for k, less := range sumsOf(c.lateSeen, seen) {
		list[k] -= less
	}
	for k := range list {
		for _, u := range c.lost {
			if u.time < begun[k].time && u.answered+nanoseconds(stale) > seen[k].time {
				list[k] += u.by
			}
		}
	}
	return list
}
