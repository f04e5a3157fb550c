package verify

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/counterd/counterd/api/wire"
)

// promise is that a cost is not denied when some time has passed, if nothing else comes.
type promise struct {
	told   int32 // the entry with the promise
	due    int64
	cost   int32
	target uint16
}

// predict holds each decision of users with one caller at a time to the model.
func (j *judge) predict() {
	of := map[int32][]int32{}
	var order []int32
	for i, e := range j.log.entries {
		if j.users.who(e.who).role == quiet {
			if of[e.who] == nil {
				order = append(order, e.who)
			}
			of[e.who] = append(of[e.who], int32(i))
		}
	}
	for _, who := range order {
		newPredictor(j, of[who]).run()
	}
}

// predictor holds the decisions of one user to the model.
type predictor struct {
	*judge
	model    *model
	entries  []int32 // of the user
	resets   []reset // of its counters, in the order of time
	last     change
	promises []promise
	told     []denial // that may be given again
}

func newPredictor(j *judge, entries []int32) *predictor {
	who := j.log.entries[entries[0]].who
	p := &predictor{judge: j, model: &model{contract: j.contract, since: map[int]int{}}, entries: entries}
	counters := j.users.who(who).counters
	for k, id := range counters {
		if !slices.Contains(counters[:k], id) {
			p.resets = append(p.resets, j.resets[id]...)
		}
	}
	slices.SortFunc(p.resets, func(a, b reset) int { return cmp.Compare(a.sent, b.sent) })
	return p
}

// run holds the decisions to the model, until they are not known any more.
func (p *predictor) run() {
	for n := 0; n < len(p.entries); {
		e := p.log.entries[p.entries[n]]
		if !p.knows(e, n) {
			p.excused.Unpredicted++
			return
		}
		together := p.log.together(p.entries[n:])
		n += together
		switch {
		case e.outcome == refused:
			continue
		case e.kind == increment || e.kind == late:
			p.model.add(e.stamp, int64(e.cost))
			if e.kind == late {
				p.last = change{e.target, e.answered}
			}
			p.promises, p.told = nil, notOf(e.target, p.told)
			continue
		}
		if !p.call(p.entries[:n], together) {
			return // what follows from it is no news
		}
	}
}

// knows reports whether the answer to the n-th entry is known beforehand. It has the model forget
// what was reset before it.
func (p *predictor) knows(e entry, n int) bool {
	for ; len(p.resets) > 0 && p.resets[0].sent < e.sent; p.resets = p.resets[1:] {
		r := p.resets[0]
		if !r.done || p.pending(p.entries[:n], r.answered) {
			return false
		}
		p.model.forgetCounter(p.users.who(e.who), r.counter)
		p.last, p.told = change{r.target, r.answered}, notOf(r.target, p.told)
	}
	return !p.last.hiddenFrom(e) && e.outcome != unknown && e.onError == 0 && !(p.copies == 1 && p.losses.disturbed(p.began(), e.answered))
}

// began returns when the first call was sent.
func (p *predictor) began() int64 { return p.log.entries[p.entries[0]].sent }

// change is one of the past, by a target; others may not see it yet.
type change struct {
	target   uint16
	answered int64 // 0: there was none
}

func (c change) hiddenFrom(e entry) bool {
	return c.answered != 0 && e.target != c.target && e.sent < c.answered+nanoseconds(closedLife)
}

// call holds the last entries, those of one call, to the model. It reports whether what comes
// after them is known.
func (p *predictor) call(entries []int32, together int) bool {
	call := entries[len(entries)-together:]
	wants := make([]forecast, together)
	for k, i := range call {
		e := p.log.entries[i]
		if e.outcome > denied || e.onError != 0 {
			p.excused.Unpredicted++
			return false
		}
		wants[k] = p.model.decide(p.asked(i))
		if e.outcome == admitted && e.kind != check {
			p.told = notOf(e.target, p.told)
		}
	}
	for k, i := range call {
		e, want := p.log.entries[i], wants[k]
		p.keep(i)
		wrong, repeated := p.wrong(i, want)
		if repeated {
			p.excused.Repeated++
			continue // what it says of the time to wait is not of now
		}
		if len(wrong) > 0 && p.pardoned(e, want, entries) {
			p.excused.Unpredicted++
			return false
		}
		p.checked.Predictions++
		for _, w := range wrong {
			p.findings.add(Violation{
				Check: w.check, sort: "prediction", Feature: p.feature(int(p.users.who(e.who).counters[0])), Text: w.text,
				Events: p.eventsOf(entries[max(0, len(entries)-maxEvents):]),
			})
		}
		if e.outcome == denied == want.Allowed {
			return false // the log and the model go apart from here on
		}
		if p.note(i); slices.ContainsFunc(entries, p.mayBeLeft) {
			p.promises = nil // it may be in the way of hits that come again
		}
	}
	return true
}

// wrong returns the differences of an answer from the model, and reports whether it is a denial
// that repeats one before it. A denied hit of a batch may also have the numbers after the batch.
func (p *predictor) wrong(i int32, want forecast) (wrong []difference, repeated bool) {
	e := p.log.entries[i]
	wrong = p.differences(i, want)
	if e.outcome != denied {
		return wrong, false
	}
	behind := p.asked(i)
	behind.behind = true
	after := p.model.decide(behind)
	p.told = append(p.told, denial{e, want}, denial{e, after}) // either may be remembered
	switch {
	case len(wrong) == 0 || !want.Allowed && len(p.differences(i, after)) == 0:
		return nil, false
	case !want.Allowed && p.repeated(i):
		return nil, true
	}
	return wrong, false
}

// pardoned reports whether a difference from the model breaks no promise:
// after a loss that is said, and too much where copies may count twice, of any of the entries up
// to it.
func (p *predictor) pardoned(e entry, want forecast, entries []int32) bool {
	if p.losable() && e.incomplete != 0 {
		return true
	}
	twice := p.losses.disturbed(p.began(), e.answered) || slices.ContainsFunc(entries, p.mayBeLeft)
	if p.copies == 1 || !twice || e.outcome == admitted && !want.Allowed {
		return false
	}
	p.excused.HighCounts++
	return true
}

// keep holds a decision to what was promised.
func (x *predictor) keep(i int32) {
	e := x.log.entries[i]
	early := false
	for _, p := range x.promises {
		if e.target != p.target || e.cost > p.cost {
			continue
		}
		switch {
		case e.sent < p.due:
			early = true
			continue
		case e.outcome == denied && !x.contract.breaks(e):
		case e.outcome == denied:
			name := x.name(int(x.users.who(e.who).counters[0]))
			x.findings.add(Violation{
				Check: CheckRetryAfter, sort: "promise", Feature: x.feature(int(x.users.who(e.who).counters[0])), Events: x.eventsOf([]int32{p.told, i}),
				Text: fmt.Sprintf("%s: a hit that was told to come again in %ds came after that, with no other in between, and was denied",
					name, x.log.entries[p.told].retryAfter),
			})
		default:
			x.checked.Retries++
		}
		return
	}
	if early && e.outcome == denied {
		x.checked.Early++
	}
}

// note takes down what is promised, until something else comes.
func (p *predictor) note(i int32) {
	e := p.log.entries[i]
	switch {
	case e.outcome == admitted && e.kind != check:
		p.promises = nil
	case e.outcome == denied && e.retryAfter > 0:
		if p.contract.countsAll() && e.kind != check {
			p.promises = nil // what was promised before did not know of it
		}
		p.promises = append(p.promises, promise{told: i, due: e.answered + int64(e.retryAfter)*int64(time.Second), cost: e.cost, target: e.target})
	}
}

type difference struct{ check, text string }

// differences are those between an answer and the model.
func (p *predictor) differences(i int32, want forecast) (wrong []difference) {
	e := p.log.entries[i]
	name := p.name(int(p.users.who(e.who).counters[0]))
	was := func(check, format string, args ...any) {
		wrong = append(wrong, difference{check, name + ": " + fmt.Sprintf(format, args...)})
	}
	switch {
	case e.outcome == admitted && !want.Allowed:
		was(CheckWindows, "a cost of %d is admitted, and by the log it does not fit for another %ss: %s", e.cost, orNull(want.RetryAfter), p.contract.full(want))
		return wrong
	case e.outcome == denied && want.Allowed:
		was(CheckDenials, "a cost of %d is denied, and by the log it fits all limits, with nobody else calling", e.cost)
		return wrong
	case want.open && want.RetryAfter != nil:
		if int64(e.retryAfter) < *want.RetryAfter {
			was(CheckRetryAfter, "retry_after is %d, and by the log it is at least %s", e.retryAfter, orNull(want.RetryAfter))
		}
	case int64(e.retryAfter) != value(want.RetryAfter):
		was(CheckRetryAfter, "retry_after is %d, and by the log it is %s", e.retryAfter, orNull(want.RetryAfter))
	}
	for at, got := range p.log.countsOf(i) {
		s := want.Limits[at]
		bit := uint64(1) << at
		if p.contract.whole(p.contract.limits[at]) {
			continue
		}
		if e.denies&bit == 0 != s.Allowed {
			was(CheckDenials, "%s says allowed %t, and by the log it is not so", s.Name, !s.Allowed)
		}
		if got != s.Count && (e.inexact&bit == 0 || got < s.Count) {
			was(CheckCounts, "%s counts %d, and by the log it is %d", s.Name, got, s.Count)
		}
	}
	return wrong
}

func (j *judge) eventsOf(entries []int32) (list []Event) {
	for _, i := range slices.Compact(slices.Clone(entries)) {
		list = append(list, j.event(i))
	}
	return list
}

// denial is one that was given, and what it had to be.
type denial struct {
	entry
	want forecast
}

// notOf returns the denials of other targets: this one knows what it has admitted
// since.
func notOf(target uint16, told []denial) []denial {
	return slices.DeleteFunc(told, func(d denial) bool { return d.target == target })
}

// repeated reports whether a denial tells of each of its limits what is so, or what was so
// when the same target denied the same cost before, in the same second: it remembers that,
// and cannot know what others have admitted since. What it has admitted itself it knows.
func (p *predictor) repeated(i int32) bool {
	e, told := p.log.entries[i], p.told
	now := told[len(told)-1].want
	counts := p.log.countsOf(i)
	said := int64(e.retryAfter)
	if e.retryAfter == never {
		said = math.MaxInt64
	}
	reachable, certain := false, int64(0) // whether retry_after is one of the resets; none is surely longer
	for at, l := range p.contract.limits {
		if p.contract.whole(l) {
			reachable = reachable || p.contract.enforced(l) && (e.denies&(1<<at) != 0 || p.contract.ruleOf(l).countAll)
			continue
		}
		elastic := p.contract.ruleOf(l).elastic // and does not deny for longer than the whole event
		found, least := false, int64(math.MaxInt64)
		accept := func(s wire.LimitState) {
			denies, inexact := e.denies&(1<<at) != 0, e.inexact&(1<<at) != 0
			if s.Count != counts[at] && !(inexact && s.Count < counts[at]) || s.Allowed == denies && !elastic {
				return
			}
			if elastic {
				found, least = true, 0
				return
			}
			wait := int64(0)
			switch {
			case s.Reset != nil:
				wait = *s.Reset
			case denies:
				wait = math.MaxInt64 // never
			}
			found, least = true, min(least, wait)
			reachable = reachable || wait == said && p.contract.enforced(l)
		}
		accept(now.Limits[at])
		for _, d := range told[:len(told)-1] {
			if d.cost == e.cost && d.kind != check && d.target == e.target && d.stamp == e.stamp {
				accept(d.want.Limits[at])
			}
		}
		if !found {
			return false
		}
		if p.contract.enforced(l) {
			certain = max(certain, least)
		}
	}
	return reachable && certain <= said
}

func (p *predictor) asked(i int32) asked {
	e := p.log.entries[i]
	return asked{second: e.stamp, cost: int64(e.cost), kind: e.kind, denies: e.denies, counts: p.log.countsOf(i)}
}
