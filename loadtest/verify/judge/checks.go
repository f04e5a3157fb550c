package judge

import (
	"cmp"
	"fmt"
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
	var all, strict exactlog.Log
	var strictAt []int32
	slices.SortStableFunc(entries, func(a, b int32) int { return cmp.Compare(c.Log.entries[a].Stamp, c.Log.entries[b].Stamp) })
	for _, i := range entries {
		e := c.Log.entries[i]
		all.Add(e.Stamp, int64(e.Cost))
		if !c.losable() || !c.losses.excuses(e, at) {
			strict.Add(e.Stamp, int64(e.Cost))
			strictAt = append(strictAt, i)
		}
	}
	c.Findings.Checked.Windows += int64(all.Len())
	robbed := func(i int32) int64 { return c.resets.robbed(c.Log.entries[i].Sent) }
	wrong := func(w exactlog.Window, at []int32) bool {
		c.blame(Violation{Check: Windows, Limit: l.Name}, c.id, only(at[w.First:w.Last]...),
			"%d admitted in the %s of %s, and %s admits %d", w.Sum, l.Window, w, l.Name, l.Ceiling)
		return true
	}
	for w := range strict.Overfull(l.Ceiling, l.Length, l.Step) {
		if w.Sum > l.Ceiling+robbed(strictAt[w.First]) {
			return wrong(w, strictAt)
		}
		excused.AfterResets++
	}
	for w := range all.Overfull(l.Ceiling, l.Length, l.Step) {
		if c.Ours && w.Sum > l.Ceiling*(1+c.losses.within(w.From, w.To, c.Log.second))+robbed(entries[w.First]) {
			return wrong(w, entries)
		}
		excused.Windows++
		excused.MostBeyond = max(excused.MostBeyond, w.Sum-l.Ceiling)
	}
	return false
}

// denials finds the denials that no limit had a reason for: with all that may have been counted
// before the answer, there was room.
func (c *counter) denials(at int) {
	l := c.Limits[at]
	if c.shared {
		return
	}
	var questions []question
	for _, i := range c.entries {
		e := c.Log.entries[i]
		if e.Outcome == Denied && e.Denies&^e.OnError&(1<<at) != 0 && int64(e.Cost) <= l.Ceiling {
			from, to := l.WindowAt(e.Stamp)
			questions = append(questions, question{e.Call, i, e.Answered, from, to})
		}
	}
	c.Findings.Checked.Denials += int64(len(questions))
	for k, most := range c.most(questions) {
		i := questions[k].entry
		e := c.Log.entries[i]
		room := l.Ceiling - int64(e.Cost)
		if c.all && e.Kind != Check {
			most -= int64(e.Cost) // its own
		}
		if most > room {
			continue
		}
		if most+c.overshoot(e) > room && !(c.Queued && c.user(e).Role == Burst) {
			c.Findings.Excused.Overshoot++
			continue
		}
		c.blame(Violation{Check: Denials, Limit: l.Name}, c.id, func() []int32 {
			return c.which(func(k int32, o Entry) bool {
				return o.Sent < e.Answered && o.Stamp > e.Stamp-l.Length && o.Stamp <= e.Stamp+contract.Grace && (o.Outcome != Denied || c.all) && o.Kind != Check || k == i
			})
		}, "a cost of %d is denied, and at most %d of %d were counted in the %s before", e.Cost, most, l.Ceiling, l.Window)
	}
}

// which returns such entries.
func (c *counter) which(such func(i int32, e Entry) bool) (list []int32) {
	for _, i := range c.entries {
		if such(i, c.Log.entries[i]) {
			list = append(list, i)
		}
	}
	return list
}

// standing holds the counts in the answers to admitted hits to the log: they are no less
// than what had been acknowledged before.
func (c *counter) standing(at int) {
	l := c.Limits[at]
	var questions []question
	for _, i := range c.entries {
		e := c.Log.entries[i]
		if e.isHit() && e.Outcome == Admitted && e.OnError&(1<<at) == 0 && !(c.losable() && c.losses.excuses(e, at)) {
			from, to := contract.Outward(e.Stamp-l.Length+1, e.Stamp, l.Step)
			questions = append(questions, question{e.Call, i, e.Sent, from, to})
		}
	}
	c.Findings.Checked.Counts += int64(len(questions))
	for k, least := range c.least(questions) {
		i := questions[k].entry
		least += int64(c.Log.entries[i].Cost)
		if got := c.Log.countsOf(i)[at]; got < least {
			c.blame(Violation{Check: Counts, Limit: l.Name}, c.id, only(i),
				"the answer to a hit counts %d in %s, and with it there are at least %d in the log", got, l.Window, least)
		}
	}
}

// waits finds the denials with a retry_after before one limit can have room: what had been
// acknowledged before has not left its window by then. And it notes which have a
// reason: a second sooner there was no room, with all that may have been counted.
func (c *counter) waits(at int) {
	l := c.Limits[at]
	if l.Shadow {
		return
	}
	var then, sooner []question
	for _, i := range c.entries {
		e := c.Log.entries[i]
		// One that counts what it let in and others denied has to have room for it again.
		again := l.CountAll && e.Kind != Check
		if e.Outcome != Denied || e.OnError&(1<<at) != 0 || e.Denies&(1<<at) == 0 && !again || e.RetryAfter < 1 {
			continue
		}
		if l.Elastic {
			// It has room as soon as the whole event has. What denies with it is held by itself.
			c.reasons[i] = c.reasons[i] || !c.deniedByWhole(e)
			continue
		}
		due := e.Stamp + int64(e.RetryAfter)
		if !c.losable() || !c.losses.excuses(e, at) {
			from, to := l.WindowAt(due)
			then = append(then, question{e.Call, i, e.Sent - remembered, from, to})
		}
		from, to := l.WindowAt(due - 1)
		sooner = append(sooner, question{e.Call, i, e.Answered, from, to})
	}
	for k, least := range c.least(then) {
		i := then[k].entry
		e, room := c.Log.entries[i], l.Ceiling-least
		if int64(e.Cost) <= room {
			continue
		}
		if from, to := l.WindowAt(e.Stamp); int64(e.Cost) <= room+c.besideLate(e, from, to) {
			c.Findings.Excused.Late++
			continue
		}
		c.blame(Violation{Check: RetryAfter, Limit: l.Name}, c.id, only(i),
			"a cost of %d has a retry_after of %ds, and by the log %s then has at least %d of %d", e.Cost, e.RetryAfter, l.Name, least, l.Ceiling)
	}
	for k, most := range c.most(sooner) {
		i := sooner[k].entry
		e := c.Log.entries[i]
		// Others were stamped while it was under way, and by clocks that differ by less than the grace.
		if latest := e.Stamp + contract.Grace + contract.Seconds(e.took()) + 1; sooner[k].from <= latest {
			most += c.overshoot(e)
		}
		if c.shared || most+int64(e.Cost) > l.Ceiling {
			c.reasons[i] = true
		}
	}
}

// tooLong finds the denials with a later retry_after than any limit has a reason for.
func (j *judge) tooLong() {
	for n, e := range j.Log.entries {
		i := int32(n)
		if e.Outcome != Denied || e.RetryAfter < 1 {
			continue
		}
		j.Findings.Checked.Waits++
		// A search for the moment that is cut short finds one that is late.
		if j.reasons[i] || e.RetryAfter == 1 || e.OnError != 0 || e.took() >= j.Timeout || j.losses.unsettled(e.Call) || j.losses.disturbed(e.Sent, e.Answered) {
			continue
		}
		j.blame(Violation{Check: RetryAfter}, j.user(e).Counters[0], only(i),
			"a cost of %d has a retry_after of %ds, and by the log it fits all limits a second before", e.Cost, e.RetryAfter)
	}
}

// checkLooks holds counts and histories to the log.
func (c *counter) checkLooks() {
	before, after := make([]question, len(c.looks)), make([]question, len(c.looks))
	for i, k := range c.looks {
		before[i] = question{k.Call, 0, k.Sent, k.From, k.To}
		after[i] = question{k.Call, 0, k.Answered, k.From, k.To}
	}
	c.Findings.Checked.Counts += int64(len(c.looks))
	least, most := c.least(before), c.most(after)
	told, begun := sumsOf(c.sure, answered, before), sumsOf(c.sure, sent, after)
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
			c.miscounted(k, least[i], most)
		case len(c.resets) > 0: // the reset may have forgotten what came before
		case k.Count < told[i]:
			c.Findings.Excused.LowCounts++
		case k.Count > begun[i] && underWay == 0:
			c.Findings.Excused.HighCounts++
		}
	}
}

func (c *counter) miscounted(k Look, least, most int64) {
	what, want := "a count", fmt.Sprint(least)
	if k.Bucket {
		what = "a bucket of the history"
	}
	if most != least {
		want = fmt.Sprintf("%d to %d", least, most)
	}
	look := c.Log.Event(Entry{Call: k.Call, Kind: Count}, nil)
	look.Answer = fmt.Sprint("count ", k.Count)
	c.blame(Violation{Check: Counts, Events: []Event{look}}, c.id, func() []int32 {
		return c.which(func(_ int32, e Entry) bool {
			unplaced := e.Stamp == 0 && c.Log.second(e.Sent) <= k.To && c.Log.second(e.Answered) >= k.From
			underWay := e.Sent < k.Answered && e.Answered > k.Sent
			placed := (e.Outcome != Denied || c.all) && e.Stamp >= k.From && e.Stamp <= k.To
			return e.Kind != Check && (unplaced || underWay || placed)
		})
	}, "%s of %s to %s is %d, and by the log it is %s", what,
		time.Unix(k.From, 0).UTC().Format(time.DateTime), time.Unix(k.To, 0).UTC().Format(time.DateTime), k.Count, want)
}
