package judge

import (
	"math"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/loadtest/verify/contract"
)

// model knows every decision of a feature that is called by one caller at a time: it keeps
// each event and sums them all, slow and obviously right.
type model struct {
	contract *contract.Contract
	events   []added
	since    map[int]int // from which of them on a rule's counter holds them; there: it was reset
}

// added is what an event adds; one that was denied adds to the counters that count all.
type added struct {
	second, by int64
	denied     bool
}

// sum is what a limit's window holds that ends with that second, and what lies ahead.
func (m *model) sum(l contract.Limit, second int64) (sum int64) {
	from, to := l.WindowAt(second)
	for _, e := range m.events[m.since[l.Index]:] {
		if from <= e.second && e.second <= to && (l.CountAll || !e.denied) {
			sum += e.by
		}
	}
	return sum
}

// reset is in how many seconds a cost fits; nil: never.
func (m *model) reset(l contract.Limit, second, cost int64) *int64 {
	if cost > l.Ceiling {
		return nil
	}
	best := int64(0)
	if m.sum(l, second)+cost <= l.Ceiling {
		return &best
	}
	best = math.MaxInt64
	for _, e := range m.events { // there is more room only when one of them leaves
		_, last := contract.Outward(0, e.second, l.Step)
		if wait := last + l.Length - second; wait > 0 && wait < best && m.sum(l, second+wait)+cost <= l.Ceiling {
			best = wait
		}
	}
	return &best
}

// asked is a hit, and the answer for the limits of the whole event: these are of all
// callers, and held to the whole log elsewhere.
type asked struct {
	second, cost int64
	kind         Kind
	behind       bool   // it is denied, and comes after all hits of its batch
	denies       uint64 // by bits
	counts       []int64
}

// forecast is the answer that a hit has to get.
type forecast struct {
	wire.Decision
	open bool // how long the whole event denies is a part of retry_after, and not known
}

// decide returns the decision that a hit gets, and counts it.
func (m *model) decide(a asked) forecast {
	d := forecast{Decision: wire.Decision{Allowed: true}}
	roomy := true // the whole event has room
	for i, l := range m.contract.Limits {
		s := wire.LimitState{Name: l.Name}
		if l.Whole() {
			s.Count, s.Allowed = a.counts[i], a.denies&(1<<i) == 0
			roomy = roomy && s.Allowed
		} else {
			s.Count = m.sum(l, a.second)
			if a.behind && l.CountAll {
				s.Count -= a.cost // it is there already
			}
			s.Allowed = s.Count+a.cost <= l.Ceiling
		}
		d.Limits = append(d.Limits, s)
	}
	for i, l := range m.contract.Limits {
		s := &d.Limits[i]
		s.Allowed = s.Allowed || l.Elastic && roomy
		d.Allowed = d.Allowed && (s.Allowed || l.Shadow)
	}
	if a.kind != Check && !a.behind {
		m.events = append(m.events, added{a.second, a.cost, !d.Allowed})
	}
	for i, l := range m.contract.Limits {
		if (d.Allowed || l.CountAll) && a.kind != Check && !l.Whole() {
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
	for i, l := range m.contract.Limits {
		if l.Whole() && !d.Limits[i].Allowed {
			stretches, never = true, never || a.cost > l.Ceiling
		}
	}
	for i, l := range m.contract.Limits {
		s := &d.Limits[i]
		known := !l.Whole() || a.cost > l.Ceiling
		if l.Elastic && stretches && !never {
			known = false // it has room as soon as the whole event has, if that is earlier
		}
		s.Reset = new(int64)
		// It counts what another limit has denied, and may have no room for it a second time.
		counts := !d.Allowed && a.kind != Check && l.CountAll && !l.Shadow
		switch {
		case s.Allowed && (!counts || known && s.Count+a.cost <= l.Ceiling):
		case known:
			s.Reset = m.reset(l, a.second, a.cost)
		default:
			d.open = d.open || !l.Shadow
		}
	}
	d.RetryAfter = m.contract.RetryAfter(d.Decision)
}

func (m *model) add(second, by int64) { m.events = append(m.events, added{second, by, false}) }

// forget has all rules with that counter begin again.
func (m *model) forget(user *User, counter int32) {
	for rule, id := range user.Counters {
		if id == counter {
			m.since[rule] = len(m.events)
		}
	}
}
