package verify

import (
	"fmt"
	"time"
)

// waits finds the denials that were told to come again sooner than one limit can have room:
// what had been acknowledged before has not left its window by then. And it notes which were
// told so for a reason: a second sooner there was no room, with all that may have been counted.
func (t *trial) waits(c *ledger, at int) {
	l := t.contract.limits[at]
	if !t.contract.enforced(l) {
		return
	}
	var told, bounded []int32
	var then, sooner []question
	var answered, sent []int64
	for _, i := range c.entries {
		e := t.log.entries[i]
		// One that counts what it let in and others denied has to have room for it again.
		counts := t.contract.ruleOf(l).countAll && e.kind != check
		if e.outcome != denied || e.onError&(1<<at) != 0 || e.denies&(1<<at) == 0 && !counts || e.retryAfter < 1 {
			continue
		}
		if t.contract.ruleOf(l).elastic {
			// It has room as soon as the whole event has. What denies with it is held by itself.
			t.reasons[i] = t.reasons[i] || !t.deniedByAll(e)
			continue
		}
		if !t.losable() || !t.excuses(e, at) {
			from, to := t.contract.windowAt(l, e.stamp+int64(e.retryAfter))
			told = append(told, i)
			then, answered = append(then, question{e.sent - nanoseconds(remembered), from, to}), append(answered, e.answered)
		}
		from, to := t.contract.windowAt(l, e.stamp+int64(e.retryAfter)-1)
		bounded = append(bounded, i)
		sooner, sent = append(sooner, question{e.answered, from, to}), append(sent, e.sent)
	}
	beside := c.besideLate(t, l, told)
	for k, least := range t.least(c, then, answered) {
		e, room := t.log.entries[told[k]], l.ceiling-least
		switch {
		case int64(e.cost) <= room:
		case int64(e.cost) <= room+beside[k]:
			t.excused.Late++
		default:
			t.findings.add(Violation{
				Check: CheckRetryAfter, Counter: t.name(c.id), Limit: l.name, Events: []Event{t.event(told[k])},
				Text: fmt.Sprintf("%s: a cost of %d is told to come again in %ds, and by the log %s then has at least %d of %d",
					t.name(c.id), e.cost, e.retryAfter, l.name, least, l.ceiling),
			})
		}
	}
	most, crowds := c.most(sooner, sent), c.inTheWay(t, bounded)
	for k, i := range bounded {
		e, others := t.log.entries[i], crowds[k]
		if latest := e.stamp + grace + (e.answered-e.sent)/nanoseconds(time.Second) + 1; sooner[k].from > latest {
			others = 0 // they were stamped while it was under way, and by clocks that differ by less than the grace
		}
		if c.shared || most[k]+others+int64(e.cost) > l.ceiling {
			t.reasons[i] = true
		}
	}
}

// tooLong finds the denials that were told to come again later than any limit has a reason for.
func (t *trial) tooLong() {
	for n, e := range t.log.entries {
		i := int32(n)
		if e.outcome != denied || e.retryAfter < 1 {
			continue
		}
		t.checked.Waits++
		// A search for the moment that is cut short finds one that is late.
		if t.reasons[i] || e.retryAfter == 1 || e.onError != 0 || e.answered-e.sent >= t.timeout || t.unsettled(e) || t.disturbed(e.sent, e.answered) {
			continue
		}
		t.findings.add(Violation{
			Check: CheckRetryAfter, Counter: t.name(int(t.people.who(e.who).counters[0])), Events: []Event{t.event(i)},
			Text: fmt.Sprintf("a cost of %d is told to come again in %ds, and by the log it fits all limits a second before", e.cost, e.retryAfter),
		})
	}
}

// deniedByAll reports whether a limit of the whole event denies.
func (t *trial) deniedByAll(e entry) bool {
	for i, l := range t.contract.limits {
		if e.denies&(1<<i) != 0 && t.contract.enforced(l) && t.contract.whole(l) {
			return true
		}
	}
	return false
}

// besideLate returns, of each of those entries, how much was added to the past in a limit's window
// beside it, or so shortly before that it may know of some buckets as they were and of others as
// they are.
func (c *ledger) besideLate(t *trial, l limit, entries []int32) []int64 {
	begun, seen := make([]question, len(entries)), make([]question, len(entries))
	for k, i := range entries {
		e := t.log.entries[i]
		from, to := t.contract.windowAt(l, e.stamp)
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
