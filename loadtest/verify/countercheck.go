package verify

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/counterd/counterd/loadtest/exactlog"
)

// counterCheck holds what was answered of one counter to its log.
type counterCheck struct {
	*judge
	*counterLog
}

// remembered is how long a denial is.
const remembered = time.Second

// windows finds those of a limit that held more than it admits, by stamps.
func (x counterCheck) windows(at int) {
	l := x.contract.limits[at]
	if !x.contract.bounded(l) {
		return
	}
	segments := make([][]int32, len(x.counterLog.resets)+1)
	for _, i := range x.entries {
		e := x.log.entries[i]
		if e.kind > batch || e.outcome != admitted || e.onError&(1<<at) != 0 {
			continue
		}
		n, whole := x.segment(e)
		if !whole {
			x.excused.AtResets++
			continue
		}
		segments[n] = append(segments[n], i)
	}
	for _, entries := range segments {
		if x.overfullOf(at, entries) {
			return // the others are mostly the same hits
		}
	}
}

// overfullOf finds the windows of those hits, which no reset has parted, that held more than a
// limit admits. It reports whether there is one that is not excused.
func (x counterCheck) overfullOf(at int, entries []int32) bool {
	l := x.contract.limits[at]
	var all, strict exactlog.Log
	var strictAt []int32
	slices.SortStableFunc(entries, func(a, b int32) int { return cmp.Compare(x.log.entries[a].stamp, x.log.entries[b].stamp) })
	for _, i := range entries {
		e := x.log.entries[i]
		all.Add(e.stamp, int64(e.cost))
		if !x.losable() || !x.losses.excuses(e, at) {
			strict.Add(e.stamp, int64(e.cost))
			strictAt = append(strictAt, i)
		}
	}
	x.checked.Windows += int64(all.Len())
	step := x.contract.ruleOf(l).step
	for w := range strict.Overfull(l.ceiling, l.length, step) {
		if w.Sum > l.ceiling+x.robbed(x.log.entries[strictAt[w.First]].sent) {
			x.overfull(l, w, strictAt)
			return true
		}
		x.excused.AfterResets++
	}
	for w := range all.Overfull(l.ceiling, l.length, step) {
		if x.ours && w.Sum > l.ceiling*(1+x.losses.within(w.From, w.To, x.second))+x.robbed(x.log.entries[entries[w.First]].sent) {
			x.overfull(l, w, entries)
			return true
		}
		x.excused.Windows++
		x.excused.MostBeyond = max(x.excused.MostBeyond, w.Sum-l.ceiling)
	}
	return false
}

func (x counterCheck) overfull(l limit, w exactlog.Window, at []int32) {
	v := Violation{
		Check: CheckWindows, Feature: x.feature(x.id), Limit: l.name,
		Text: fmt.Sprintf("%s: %d admitted in the %s of %s, and %s admits %d", x.name(x.id), w.Sum, l.window, w, l.name, l.ceiling),
	}
	for _, i := range at[w.First:w.Last] {
		v.Events = append(v.Events, x.event(i))
	}
	x.findings.add(v)
}

// denials finds the denials that no limit had a reason for: with all that may have been counted
// before the answer, there was room.
func (x counterCheck) denials(at int) {
	l := x.contract.limits[at]
	if x.shared {
		return
	}
	var asked []int32
	var questions []question
	var times []int64
	for _, i := range x.entries {
		e := x.log.entries[i]
		if e.outcome != denied || e.denies&^e.onError&(1<<at) == 0 || int64(e.cost) > l.ceiling {
			continue
		}
		from, to := x.contract.windowAt(l, e.stamp)
		asked = append(asked, i)
		questions, times = append(questions, question{e.answered, from, to}), append(times, e.sent)
	}
	x.checked.Denials += int64(len(asked))
	most, overshoot := x.most(questions, times), x.inTheWay(asked)
	for k, i := range asked {
		e := x.log.entries[i]
		room := l.ceiling - int64(e.cost)
		if x.all && e.kind != check {
			most[k] -= int64(e.cost) // its own
		}
		if most[k] > room {
			continue
		}
		role := x.users.who(e.who).role
		if most[k]+overshoot[k] > room && !(x.lines && role == burst) {
			x.excused.Overshoot++
			continue
		}
		x.unjust(l, i, most[k])
	}
}

func (x counterCheck) unjust(l limit, i int32, most int64) {
	e := x.log.entries[i]
	v := Violation{
		Check: CheckDenials, Feature: x.feature(x.id), Limit: l.name,
		Text: fmt.Sprintf("%s: a cost of %d is denied, and at most %d of %d were counted in the %s before", x.name(x.id), e.cost, most, l.ceiling, l.window),
	}
	if x.findings.passes(v) {
		return
	}
	for _, k := range x.entries {
		o := x.log.entries[k]
		if o.sent < e.answered && o.stamp > e.stamp-l.length && o.stamp <= e.stamp+grace && (o.outcome != denied || x.all) && o.kind != check || k == i {
			v.Events = append(v.Events, x.event(k))
		}
	}
	x.findings.add(v)
}

// standing holds the counts in the answers to admitted hits to the log: they are no less
// than what had been acknowledged before.
func (x counterCheck) standing(at int) {
	l := x.contract.limits[at]
	var asked []int32
	var questions []question
	var times []int64
	for _, i := range x.entries {
		e := x.log.entries[i]
		if e.kind > batch || e.outcome != admitted || e.onError&(1<<at) != 0 || x.losable() && x.losses.excuses(e, at) {
			continue
		}
		asked = append(asked, i)
		from, to := outward(e.stamp-l.length+1, e.stamp, x.contract.ruleOf(l).step)
		questions, times = append(questions, question{e.sent, from, to}), append(times, e.answered)
	}
	x.checked.Counts += int64(len(asked))
	for k, least := range x.least(questions, times) {
		e, i := x.log.entries[asked[k]], asked[k]
		if got := x.log.countsOf(i)[at]; got < least+int64(e.cost) {
			x.findings.add(Violation{
				Check: CheckCounts, Feature: x.feature(x.id), Limit: l.name, Events: []Event{x.event(i)},
				Text: fmt.Sprintf("%s: a hit is told of %d in %s, and with it there are at least %d in the log", x.name(x.id), got, l.window, least+int64(e.cost)),
			})
		}
	}
}

// looks holds counts and histories to the log.
func (x counterCheck) looks(looks []look) {
	before, after := make([]question, len(looks)), make([]question, len(looks))
	sent, answered := make([]int64, len(looks)), make([]int64, len(looks))
	for i, k := range looks {
		sent[i], answered[i] = k.sent, k.answered
		before[i] = question{k.sent, k.from, k.to}
		after[i] = question{k.answered, k.from, k.to}
	}
	x.checked.Counts += int64(len(looks))
	least, most := x.least(before, answered), x.most(after, sent)
	underWay := x.underWay(before, after)
	told, begun := sumsOf(x.acknowledged(false), before), sumsOf(x.acknowledged(true), after)
	for i, k := range looks {
		most := most[i] + underWay[i]
		if x.shared {
			most = math.MaxInt64
		}
		switch {
		case k.count < least[i] && !x.ours && x.hurt[x.id]:
			x.excused.LowCounts++
		case k.count < least[i] || k.count > most:
			x.miscounted(k, least[i], most)
		case len(x.counterLog.resets) > 0: // the reset may have forgotten what came before
		case k.count < told[i]:
			x.excused.LowCounts++
		case k.count > begun[i] && underWay[i] == 0:
			x.excused.HighCounts++
		}
	}
}

func (x counterCheck) miscounted(k look, least, most int64) {
	what := "a count"
	if k.bucket {
		what = "a bucket of the history"
	}
	want := fmt.Sprint(least)
	if most != least {
		want = fmt.Sprintf("%d to %d", least, most)
	}
	v := Violation{
		Check: CheckCounts, Feature: x.feature(x.id), Events: []Event{x.lookOf(k)},
		Text: fmt.Sprintf("%s: %s of %s to %s is %d, and by the log it is %s", x.name(x.id), what,
			time.Unix(k.from, 0).UTC().Format(time.DateTime), time.Unix(k.to, 0).UTC().Format(time.DateTime), k.count, want),
	}
	if x.findings.passes(v) {
		return
	}
	for _, i := range x.entries {
		e := x.log.entries[i]
		unplaced := e.stamp == 0 && x.second(e.sent) <= k.to && x.second(e.answered) >= k.from
		underWay := e.sent < k.answered && e.answered > k.sent
		placed := (e.outcome != denied || x.all) && e.stamp >= k.from && e.stamp <= k.to
		if e.kind != check && (unplaced || underWay || placed) {
			v.Events = append(v.Events, x.event(i))
		}
	}
	x.findings.add(v)
}

// inTheWay returns, of each of those denied hits, at most how much of others, that was taken
// back again, it can have counted. Each second's bucket is read once, and holds no more than
// was under way at that moment.
func (x counterCheck) inTheWay(denied []int32) []int64 {
	if x.flight == nil {
		x.flight = newInFlight(x.begun, x.ended)
	}
	before, after := make([]question, len(denied)), make([]question, len(denied))
	for k, i := range denied {
		e := x.log.entries[i]
		before[k], after[k] = question{time: e.sent - nanoseconds(remembered)}, question{time: e.answered}
	}
	list := x.underWay(before, after)
	for k, i := range denied {
		e := x.log.entries[i]
		if e.kind != check && !x.all {
			list[k] -= int64(e.cost)
		}
		seconds := x.second(e.answered) - x.second(before[k].time) + 1
		list[k] = min(list[k], seconds*x.flight.most(before[k].time, e.answered))
	}
	return list
}

// least answers questions by what must have been added, and is not gone since: what was sent
// before a server was killed may be, where there is one copy, and before a reset was answered.
// The questions were answered at these times.
func (x counterCheck) least(questions []question, answered []int64) []int64 {
	sums := byMoment(questions, func(i int) int64 {
		moment := x.keptSince(answered[i])
		if x.copies == 1 { // a call may have met a loss until it was answered
			moment = max(moment, x.losses.lastBefore(questions[i].time+nanoseconds(callTimeout)))
		}
		return moment
	}, func(moment int64, some []question) []int64 {
		var points []point
		for _, s := range x.sure {
			if s.sent > moment {
				points = append(points, s.point)
			}
		}
		return sumsOf(points, some)
	})
	if len(x.counterLog.resets) > 0 {
		for i := range sums {
			sums[i] = max(sums[i]-x.robbed(answered[i]), 0)
		}
	}
	return sums
}
