package verify

import (
	"fmt"
	"time"
)

// waits finds the denials with a retry_after before one limit can have room:
// what had been acknowledged before has not left its window by then. And it notes which were
// told so for a reason: a second sooner there was no room, with all that may have been counted.
func (x counterCheck) waits(at int) {
	l := x.contract.limits[at]
	if !x.contract.enforced(l) {
		return
	}
	var told, bounded []int32
	var then, sooner []question
	var answered, sent []int64
	for _, i := range x.entries {
		e := x.log.entries[i]
		// One that counts what it let in and others denied has to have room for it again.
		counts := x.contract.ruleOf(l).countAll && e.kind != check
		if e.outcome != denied || e.onError&(1<<at) != 0 || e.denies&(1<<at) == 0 && !counts || e.retryAfter < 1 {
			continue
		}
		if x.contract.ruleOf(l).elastic {
			// It has room as soon as the whole event has. What denies with it is held by itself.
			x.reasons[i] = x.reasons[i] || !x.contract.deniedByWhole(e)
			continue
		}
		if !x.losable() || !x.losses.excuses(e, at) {
			from, to := x.contract.windowAt(l, e.stamp+int64(e.retryAfter))
			told = append(told, i)
			then, answered = append(then, question{e.sent - nanoseconds(remembered), from, to}), append(answered, e.answered)
		}
		from, to := x.contract.windowAt(l, e.stamp+int64(e.retryAfter)-1)
		bounded = append(bounded, i)
		sooner, sent = append(sooner, question{e.answered, from, to}), append(sent, e.sent)
	}
	beside := x.besideLate(l, told)
	for k, least := range x.least(then, answered) {
		e, room := x.log.entries[told[k]], l.ceiling-least
		switch {
		case int64(e.cost) <= room:
		case int64(e.cost) <= room+beside[k]:
			x.excused.Late++
		default:
			x.findings.add(Violation{
				Check: CheckRetryAfter, Feature: x.feature(x.id), Limit: l.name, Events: []Event{x.event(told[k])},
				Text: fmt.Sprintf("%s: a cost of %d is told to come again in %ds, and by the log %s then has at least %d of %d",
					x.name(x.id), e.cost, e.retryAfter, l.name, least, l.ceiling),
			})
		}
	}
	most, overshoot := x.most(sooner, sent), x.inTheWay(bounded)
	for k, i := range bounded {
		e, others := x.log.entries[i], overshoot[k]
		if latest := e.stamp + grace + (e.answered-e.sent)/nanoseconds(time.Second) + 1; sooner[k].from > latest {
			others = 0 // they were stamped while it was under way, and by clocks that differ by less than the grace
		}
		if x.shared || most[k]+others+int64(e.cost) > l.ceiling {
			x.reasons[i] = true
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
		if j.reasons[i] || e.retryAfter == 1 || e.onError != 0 || e.answered-e.sent >= j.timeout || j.losses.unsettled(e) || j.losses.disturbed(e.sent, e.answered) {
			continue
		}
		j.findings.add(Violation{
			Check: CheckRetryAfter, Feature: j.feature(int(j.users.who(e.who).counters[0])), Events: []Event{j.event(i)},
			Text: fmt.Sprintf("a cost of %d is told to come again in %ds, and by the log it fits all limits a second before", e.cost, e.retryAfter),
		})
	}
}

// besideLate returns, of each of those entries, how much was added to the past in a limit's window
// beside it, or so shortly before that it may know of some buckets as they were and of others as
// they are.
func (x counterCheck) besideLate(l limit, entries []int32) []int64 {
	begun, seen := make([]question, len(entries)), make([]question, len(entries))
	for k, i := range entries {
		e := x.log.entries[i]
		from, to := x.contract.windowAt(l, e.stamp)
		begun[k], seen[k] = question{e.answered, from, to}, question{e.sent, from, to}
	}
	list := sumsOf(x.late, begun)
	for k, less := range sumsOf(x.lateSeen, seen) {
		list[k] -= less
	}
	for k := range list {
		for _, u := range x.lost {
			if u.time < begun[k].time && u.answered+nanoseconds(stale) > seen[k].time {
				list[k] += u.by
			}
		}
	}
	return list
}
