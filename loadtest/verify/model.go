package verify

import (
	"math"

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

// forgetCounter has all rules with that counter begin again.
func (m *model) forgetCounter(who *user, counter int32) {
	for rule, id := range who.counters {
		if id == counter {
			m.forget(rule)
		}
	}
}
