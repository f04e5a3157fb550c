package judge

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/loadtest/verify/contract"
)

// predict holds each decision of users with one caller at a time to the model.
func (j *judge) predict() {
	for _, user := range j.Log.users {
		if user.Role == Quiet && len(user.entries) > 0 {
			p := &predictor{judge: j, model: &model{contract: j.Contract, since: map[int]int{}}, User: user}
			p.run()
		}
	}
}

// predictor holds the decisions of one user to the model.
type predictor struct {
	*judge
	*User
	model   *model
	changed Call     // the last change of the past, which other targets may not see yet; zero: there was none
	told    []denial // that may be given again
}

// denial is one that was given, and what it had to be.
type denial struct {
	Entry
	want forecast
}

// run holds the decisions to the model, until they are not known any more.
func (p *predictor) run() {
	var forgotten []Reset
	for _, id := range p.Counters {
		for _, r := range p.counters[id].resets {
			forgotten = append(forgotten, r.Reset)
		}
	}
	slices.SortFunc(forgotten, func(a, b Reset) int { return cmp.Or(cmp.Compare(a.Sent, b.Sent), cmp.Compare(a.Counter, b.Counter)) })
	forgotten = slices.Compact(forgotten) // rules may share a counter
	for n := 0; n < len(p.entries); {
		e := p.Log.entries[p.entries[n]]
		for ; len(forgotten) > 0 && forgotten[0].Sent < e.Sent; forgotten = forgotten[1:] {
			if !p.forget(forgotten[0], p.entries[:n]) {
				p.Findings.Excused.Unpredicted++
				return
			}
		}
		hidden := p.changed.Answered != 0 && e.Target != p.changed.Target && e.Sent < p.changed.Answered+int64(Closed)
		if hidden || e.Outcome == Unknown || e.OnError != 0 || p.Replicas == 1 && p.losses.disturbed(p.began(), e.Answered) {
			p.Findings.Excused.Unpredicted++
			return
		}
		first := n
		for n++; n < len(p.entries); n++ { // all hits of a batch
			if o := p.Log.entries[p.entries[n]]; e.Kind != Batch || o.Kind != Batch || o.Sent != e.Sent {
				break
			}
		}
		switch {
		case e.Outcome == Refused:
		case e.Kind == Increment || e.Kind == Late:
			p.model.add(e.Stamp, int64(e.Cost))
			if e.Kind == Late {
				p.changed = e.Call
			}
			p.knows(e.Target)
		case !p.call(p.entries[:n], p.entries[first:n]):
			return // what follows from it is no news
		}
	}
}

// began returns when the first call was sent.
func (p *predictor) began() int64 { return p.Log.entries[p.entries[0]].Sent }

// forget has the model forget what was reset. It reports whether that is known.
func (p *predictor) forget(r Reset, before []int32) bool {
	if !r.Done || p.missed(before, r.Answered) {
		return false
	}
	p.model.forget(p.User, r.Counter)
	p.changed = r.Call
	p.knows(r.Target)
	return true
}

// knows drops the denials of a target, which knows what it has changed since.
func (p *predictor) knows(target uint16) {
	p.told = slices.DeleteFunc(p.told, func(d denial) bool { return d.Target == target })
}

// call holds the entries of one call, the last of those so far, to the model. It reports whether
// what comes after them is known.
func (p *predictor) call(soFar, call []int32) bool {
	wants := make([]forecast, len(call))
	for k, i := range call {
		e := p.Log.entries[i]
		if e.Outcome > Denied || e.OnError != 0 {
			p.Findings.Excused.Unpredicted++
			return false
		}
		wants[k] = p.model.decide(p.asked(i))
		if e.Outcome == Admitted && e.Kind != Check {
			p.knows(e.Target)
		}
	}
	for k, i := range call {
		e, want := p.Log.entries[i], wants[k]
		wrong, repeated := p.wrong(i, want)
		if repeated {
			p.Findings.Excused.Repeated++
			continue // what it says of the time to wait is not of now
		}
		if len(wrong) > 0 && p.pardoned(e, want, soFar) {
			p.Findings.Excused.Unpredicted++
			return false
		}
		p.Findings.Checked.Predictions++
		for _, d := range wrong {
			p.blame(Violation{Check: d.check, sort: "prediction"}, p.Counters[0], only(soFar[max(0, len(soFar)-maxEvents):]...), "%s", d.text)
		}
		if e.Outcome == Denied == want.Allowed {
			return false // the log and the model go apart from here on
		}
	}
	return true
}

// wrong returns the differences of an answer from the model, and reports whether it is a denial
// that repeats one before it. A denied hit of a batch may also have the numbers after the batch.
func (p *predictor) wrong(i int32, want forecast) (wrong []difference, repeated bool) {
	e := p.Log.entries[i]
	wrong = p.differences(i, want)
	if e.Outcome != Denied {
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

// pardoned reports whether a difference from the model breaks no promise: after a loss that is
// said, and too much where replicas may count twice, also of what was left on one.
func (p *predictor) pardoned(e Entry, want forecast, soFar []int32) bool {
	if p.losable() && e.Incomplete != 0 {
		return true
	}
	twice := p.losses.disturbed(p.began(), e.Answered) || slices.ContainsFunc(soFar, p.mayBeLeft)
	if p.Replicas == 1 || !twice || e.Outcome == Admitted && !want.Allowed {
		return false
	}
	p.Findings.Excused.HighCounts++
	return true
}

type difference struct{ check, text string }

// differences are those between an answer and the model.
func (p *predictor) differences(i int32, want forecast) (wrong []difference) {
	e := p.Log.entries[i]
	was := func(check, format string, args ...any) {
		wrong = append(wrong, difference{check, fmt.Sprintf(format, args...)})
	}
	retryAfter := contract.OrNull(want.RetryAfter)
	switch {
	case e.Outcome == Admitted && !want.Allowed:
		full := ""
		for at, s := range want.Limits {
			if l := p.Limits[at]; !s.Allowed && !l.Shadow {
				full += fmt.Sprintf("%s has %d of %d; ", s.Name, s.Count, l.Ceiling)
			}
		}
		was(Windows, "a cost of %d is admitted, and by the log it does not fit for another %ss: %s", e.Cost, retryAfter, full)
		return wrong
	case e.Outcome == Denied && want.Allowed:
		was(Denials, "a cost of %d is denied, and by the log it fits all limits, with no other caller", e.Cost)
		return wrong
	case want.open && want.RetryAfter != nil:
		if int64(e.RetryAfter) < *want.RetryAfter {
			was(RetryAfter, "retry_after is %d, and by the log it is at least %s", e.RetryAfter, retryAfter)
		}
	case int64(e.RetryAfter) != contract.Value(want.RetryAfter):
		was(RetryAfter, "retry_after is %d, and by the log it is %s", e.RetryAfter, retryAfter)
	}
	for at, got := range p.Log.countsOf(i) {
		s := want.Limits[at]
		bit := uint64(1) << at
		if p.Limits[at].Whole() {
			continue
		}
		if e.Denies&bit == 0 != s.Allowed {
			was(Denials, "%s says allowed %t, and by the log it is not so", s.Name, !s.Allowed)
		}
		if got != s.Count && (e.Inexact&bit == 0 || got < s.Count) {
			was(Counts, "%s counts %d, and by the log it is %d", s.Name, got, s.Count)
		}
	}
	return wrong
}

// repeated reports whether a denial tells of each of its limits what is so, or what was so
// when the same target denied the same cost before, in the same second: it remembers that,
// and cannot know what others have admitted since. What it has admitted itself it knows.
func (p *predictor) repeated(i int32) bool {
	e, before := p.Log.entries[i], len(p.told)-1
	answers := []forecast{p.told[before].want} // now, and before
	for _, d := range p.told[:before] {
		if d.Cost == e.Cost && d.Kind != Check && d.Target == e.Target && d.Stamp == e.Stamp {
			answers = append(answers, d.want)
		}
	}
	said := forever(int64(e.RetryAfter))
	reachable, certain := false, int64(0) // whether retry_after is one of the resets; none is surely longer
	for at, l := range p.Limits {
		denies, inexact := e.Denies&(1<<at) != 0, e.Inexact&(1<<at) != 0
		if l.Whole() {
			reachable = reachable || !l.Shadow && (denies || l.CountAll)
			continue
		}
		found, least := false, int64(math.MaxInt64)
		for _, answer := range answers {
			s, count := answer.Limits[at], p.Log.countsOf(i)[at]
			switch {
			case s.Count != count && !(inexact && s.Count < count) || s.Allowed == denies && !l.Elastic:
			case l.Elastic: // it does not deny for longer than the whole event
				found, least = true, 0
			default:
				found, least = true, min(least, waitOf(s, denies))
				reachable = reachable || waitOf(s, denies) == said && !l.Shadow
			}
		}
		if !found {
			return false
		}
		if !l.Shadow {
			certain = max(certain, least)
		}
	}
	return reachable && certain <= said
}

// waitOf is how long a limit denies by its reset, in seconds.
func waitOf(s wire.LimitState, denies bool) int64 {
	if s.Reset == nil && !denies {
		return 0
	}
	return forever(contract.Value(s.Reset))
}

// forever is a number of seconds of which never is the most.
func forever(seconds int64) int64 {
	if seconds == contract.Never {
		return math.MaxInt64
	}
	return seconds
}

func (p *predictor) asked(i int32) asked {
	e := p.Log.entries[i]
	return asked{second: e.Stamp, cost: int64(e.Cost), kind: e.Kind, denies: e.Denies, counts: p.Log.countsOf(i)}
}
