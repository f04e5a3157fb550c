package verify

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/counterd/counterd/api/wire"
)

// model knows every decision of a feature that is called by one caller at a time: it keeps
// each event and sums them all, slow and obviously right.
type model struct {
	contract *contract
	events   []added
	since    map[int]int // from which of them on a rule's counter holds them; there: it was reset
}

// added is what an event adds; one that was denied adds to the counters that count all.
type added struct {
	second, by int64
	denied     bool
}

// sum is what a limit's window holds that ends with that second, and what lies ahead.
func (m *model) sum(l limit, second int64) (sum int64) {
	from, to := m.contract.windowAt(l, second)
	all := m.contract.ruleOf(l).countAll
	for _, e := range m.events[m.since[l.rule]:] {
		if from <= e.second && e.second <= to && (all || !e.denied) {
			sum += e.by
		}
	}
	return sum
}

// reset is in how many seconds a cost fits; nil: never.
func (m *model) reset(l limit, second, cost int64) *int64 {
	if cost > l.ceiling {
		return nil
	}
	best := int64(0)
	if m.sum(l, second)+cost <= l.ceiling {
		return &best
	}
	best = math.MaxInt64
	for _, e := range m.events { // there is more room only when one of them leaves
		_, last := outward(0, e.second, m.contract.ruleOf(l).step)
		if wait := last + l.length - second; wait > 0 && wait < best && m.sum(l, second+wait)+cost <= l.ceiling {
			best = wait
		}
	}
	return &best
}

// asked is a hit, and the answer for the limits of the whole event: these are of all
// callers, and held to the whole log elsewhere.
type asked struct {
	second, cost int64
	kind         kind
	behind       bool   // it is denied, and comes after all hits of its batch
	denies       uint64 // by bits
	counts       []int64
}

func (j *judge) asked(i int32) asked {
	e := j.log.entries[i]
	return asked{second: e.stamp, cost: int64(e.cost), kind: e.kind, denies: e.denies, counts: j.log.countsOf(i)}
}

// forecast is the answer that a hit has to get.
type forecast struct {
	wire.Decision
	open bool // how long the whole event denies is a part of retry_after, and not known
}

// decide returns the decision that a hit gets, and counts it.
func (m *model) decide(a asked) forecast {
	d := forecast{Decision: wire.Decision{Allowed: true, RetryAfter: new(int64)}}
	roomy := true // the whole event has room
	for i, l := range m.contract.limits {
		s := wire.LimitState{Name: l.name}
		if m.contract.whole(l) {
			s.Count, s.Allowed = a.counts[i], a.denies&(1<<i) == 0
			roomy = roomy && s.Allowed
		} else {
			s.Count = m.sum(l, a.second)
			if a.behind && m.contract.ruleOf(l).countAll {
				s.Count -= a.cost // it is there already
			}
			s.Allowed = s.Count+a.cost <= l.ceiling
		}
		d.Limits = append(d.Limits, s)
	}
	for i, l := range m.contract.limits {
		s := &d.Limits[i]
		s.Allowed = s.Allowed || m.contract.ruleOf(l).elastic && roomy
		d.Allowed = d.Allowed && (s.Allowed || !m.contract.enforced(l))
	}
	if a.kind != check && !a.behind {
		m.events = append(m.events, added{a.second, a.cost, !d.Allowed})
	}
	for i, l := range m.contract.limits {
		if charged := d.Allowed || m.contract.ruleOf(l).countAll; charged && a.kind != check && !m.contract.whole(l) {
			d.Limits[i].Count += a.cost
		}
	}
	m.wait(&d, a)
	return d
}

// wait sets when each limit has room, and all of them, as far as that is known. What a hit
// that was denied has added is in its own way.
func (m *model) wait(d *forecast, a asked) {
	stretches, never := false, false // the whole event does not deny for ever
	for i, l := range m.contract.limits {
		if m.contract.whole(l) && !d.Limits[i].Allowed {
			stretches, never = true, never || a.cost > l.ceiling
		}
	}
	for i, l := range m.contract.limits {
		s := &d.Limits[i]
		known := !m.contract.whole(l) || a.cost > l.ceiling
		if m.contract.ruleOf(l).elastic && stretches && !never {
			known = false // it has room as soon as the whole event has, if that is earlier
		}
		s.Reset = new(int64)
		// It counts what another limit has denied, and may have no room for it a second time.
		counts := !d.Allowed && a.kind != check && m.contract.ruleOf(l).countAll && m.contract.enforced(l)
		switch {
		case s.Allowed && (!counts || known && s.Count+a.cost <= l.ceiling):
		case known:
			s.Reset = m.reset(l, a.second, a.cost)
		default:
			d.open = d.open || m.contract.enforced(l)
		}
	}
	d.RetryAfter = m.contract.retryAfter(d.Decision)
}

// forget has a rule's counter begin again.
func (m *model) forget(rule int) { m.since[rule] = len(m.events) }

func (m *model) add(second, by int64) { m.events = append(m.events, added{second, by, false}) }

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
		j.predictOne(of[who])
	}
}

// predictOne holds the decisions of one feature to the model, until they are not known any
// more.
func (j *judge) predictOne(entries []int32) {
	m := &model{contract: j.contract, since: map[int]int{}}
	resets := j.resetsOf(j.log.entries[entries[0]].who)
	var last change
	var p []promise
	var told []denial
	began := j.log.entries[entries[0]].sent
	for n := 0; n < len(entries); {
		i := entries[n]
		e := j.log.entries[i]
		for ; len(resets) > 0 && resets[0].sent < e.sent; resets = resets[1:] {
			r := resets[0]
			if !r.done || j.pending(entries[:n], r.answered) {
				j.excused.Unpredicted++
				return
			}
			m.forgetCounter(j.users.who(e.who), r.counter)
			last, told = change{r.target, r.answered}, notOf(r.target, told)
		}
		if last.hiddenFrom(e) || e.outcome == unknown || e.onError != 0 || j.copies == 1 && j.disturbed(began, e.answered) {
			j.excused.Unpredicted++
			return
		}
		together := j.together(entries[n:])
		n += together
		switch {
		case e.outcome == refused:
			continue
		case e.kind == increment || e.kind == late:
			m.add(e.stamp, int64(e.cost))
			if e.kind == late {
				last = change{e.target, e.answered}
			}
			p, told = nil, notOf(e.target, told)
			continue
		}
		if !j.predictCall(m, &p, &told, entries[:n], together) {
			return // what follows from it is no news
		}
	}
}

// change is one of the past, by a target; others may not see it yet.
type change struct {
	target   uint16
	answered int64 // 0: there was none
}

func (c change) hiddenFrom(e entry) bool {
	return c.answered != 0 && e.target != c.target && e.sent < c.answered+nanoseconds(closedLife)
}

// resetsOf returns the resets of a user's counters, in the order of time.
func (j *judge) resetsOf(who int32) (list []reset) {
	counters := j.users.who(who).counters
	for k, id := range counters {
		if !slices.Contains(counters[:k], id) {
			list = append(list, j.resets[id]...)
		}
	}
	slices.SortFunc(list, func(a, b reset) int { return cmp.Compare(a.sent, b.sent) })
	return list
}

// forgetCounter has all rules with that counter begin again.
func (m *model) forgetCounter(who *user, counter int32) {
	for rule, id := range who.counters {
		if id == counter {
			m.forget(rule)
		}
	}
}

// together returns how many of the first entries are of one call: of a batch all its hits.
func (j *judge) together(entries []int32) int {
	first, n := j.log.entries[entries[0]], 1
	for first.kind == batch && n < len(entries) && j.log.entries[entries[n]].kind == batch && j.log.entries[entries[n]].sent == first.sent {
		n++
	}
	return n
}

// predictCall holds the last entries, those of one call, to the model. It reports whether
// what comes after them is known.
func (j *judge) predictCall(m *model, p *[]promise, told *[]denial, entries []int32, together int) bool {
	began := j.log.entries[entries[0]].sent
	call := entries[len(entries)-together:]
	wants := make([]forecast, together)
	for k, i := range call {
		e := j.log.entries[i]
		if e.outcome > denied || e.onError != 0 {
			j.excused.Unpredicted++
			return false
		}
		wants[k] = m.decide(j.asked(i))
		if e.outcome == admitted && e.kind != check {
			*told = notOf(e.target, *told)
		}
	}
	for k, i := range call {
		e, want := j.log.entries[i], wants[k]
		j.keep(*p, i)
		wrong := j.differences(e, i, want)
		if e.outcome == denied {
			// The numbers of a denied hit of a batch are those after the batch.
			a := j.asked(i)
			a.behind = true
			after := m.decide(a)
			*told = append(*told, denial{e, want}, denial{e, after}) // either may be remembered
			switch {
			case len(wrong) == 0 || !want.Allowed && len(j.differences(e, i, after)) == 0:
				wrong = nil
			case !want.Allowed && j.repeated(e, i, *told):
				j.excused.Repeated++
				continue // what it says of the time to wait is not of now
			}
		}
		if len(wrong) > 0 && j.pardoned(e, began, want) {
			j.excused.Unpredicted++
			return false
		}
		j.checked.Predictions++
		for _, w := range wrong {
			j.findings.add(Violation{
				Check: w.check, sort: "prediction", Feature: j.feature(int(j.users.who(e.who).counters[0])), Text: w.text,
				Events: j.eventsOf(entries[max(0, len(entries)-maxEvents):]),
			})
		}
		if e.outcome == denied == want.Allowed {
			return false // the log and the model go apart from here on
		}
		j.note(p, i)
	}
	return true
}

// pardoned reports whether a difference from the model breaks no promise:
// after a loss that is said, and too much where copies may count twice.
func (j *judge) pardoned(e entry, began int64, want forecast) bool {
	if j.losable() && e.incomplete != 0 {
		return true
	}
	if j.copies == 1 || !j.disturbed(began, e.answered) || e.outcome == admitted && !want.Allowed {
		return false
	}
	j.excused.HighCounts++
	return true
}

// keep holds a decision to what was promised.
func (j *judge) keep(promises []promise, i int32) {
	e := j.log.entries[i]
	early := false
	for _, p := range promises {
		if e.target != p.target || e.cost > p.cost {
			continue
		}
		switch {
		case e.sent < p.due:
			early = true
			continue
		case e.outcome == denied && !j.breaks(e):
		case e.outcome == denied:
			name := j.name(int(j.users.who(e.who).counters[0]))
			j.findings.add(Violation{
				Check: CheckRetryAfter, sort: "promise", Feature: j.feature(int(j.users.who(e.who).counters[0])), Events: j.eventsOf([]int32{p.told, i}),
				Text: fmt.Sprintf("%s: a hit that was told to come again in %ds came after that, with no other in between, and was denied",
					name, j.log.entries[p.told].retryAfter),
			})
		default:
			j.checked.Retries++
		}
		return
	}
	if early && e.outcome == denied {
		j.checked.Early++
	}
}

// breaks reports whether a denial breaks the promise of one before: by a limit of this user
// alone, and that does not stretch as far as the whole event lets it.
func (j *judge) breaks(e entry) bool {
	for i, l := range j.contract.limits {
		r, bit := j.contract.ruleOf(l), uint64(1)<<i
		if e.denies&bit != 0 && j.contract.enforced(l) && !j.contract.whole(l) && !r.elastic {
			return true
		}
	}
	return false
}

// note takes down what is promised, until something else comes.
func (j *judge) note(promises *[]promise, i int32) {
	e := j.log.entries[i]
	switch {
	case e.outcome == admitted && e.kind != check:
		*promises = nil
	case e.outcome == denied && e.retryAfter > 0:
		if j.contract.countsAll() && e.kind != check {
			*promises = nil // what was promised before did not know of it
		}
		*promises = append(*promises, promise{told: i, due: e.answered + int64(e.retryAfter)*int64(time.Second), cost: e.cost, target: e.target})
	}
}

type difference struct{ check, text string }

// differences are those between an answer and the model.
func (j *judge) differences(e entry, i int32, want forecast) (wrong []difference) {
	name := j.name(int(j.users.who(e.who).counters[0]))
	was := func(check, format string, args ...any) {
		wrong = append(wrong, difference{check, name + ": " + fmt.Sprintf(format, args...)})
	}
	switch {
	case e.outcome == admitted && !want.Allowed:
		was(CheckWindows, "a cost of %d is admitted, and by the log it does not fit for another %ss: %s", e.cost, orNull(want.RetryAfter), j.full(want))
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
	for at, got := range j.log.countsOf(i) {
		s := want.Limits[at]
		bit := uint64(1) << at
		if j.contract.whole(j.contract.limits[at]) {
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

// full names the limits that deny.
func (j *judge) full(d forecast) (text string) {
	for i, s := range d.Limits {
		if l := j.contract.limits[i]; !s.Allowed && j.contract.enforced(l) {
			text += fmt.Sprintf("%s has %d of %d; ", s.Name, s.Count, l.ceiling)
		}
	}
	return text
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
func (j *judge) repeated(e entry, i int32, told []denial) bool {
	now := told[len(told)-1].want
	counts := j.log.countsOf(i)
	said := int64(e.retryAfter)
	if e.retryAfter == never {
		said = math.MaxInt64
	}
	reachable, certain := false, int64(0) // whether retry_after is one of the resets; none is surely longer
	for at, l := range j.contract.limits {
		if j.contract.whole(l) {
			reachable = reachable || j.contract.enforced(l) && (e.denies&(1<<at) != 0 || j.contract.ruleOf(l).countAll)
			continue
		}
		elastic := j.contract.ruleOf(l).elastic // and does not deny for longer than the whole event
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
			reachable = reachable || wait == said && j.contract.enforced(l)
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
		if j.contract.enforced(l) {
			certain = max(certain, least)
		}
	}
	return reachable && certain <= said
}
