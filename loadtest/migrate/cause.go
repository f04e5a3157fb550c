package migrate

import (
	"fmt"
	"math"
	"time"
)

// sliding are the limits of each side of which a window has ended at no multiple of its length.
type sliding [2]map[string]bool

// note notes what an answer says of its window.
func (s *sliding) note(now time.Time, i int, a Answer) {
	if s[i] == nil {
		s[i] = map[string]bool{}
	}
	if a.Reset > 0 && !a.isFixed(now) && len(s[i]) < maxRemembered {
		s[i][a.Limit] = true
	}
}

// pair is what both servers have said of a descriptor.
type pair struct {
	first time.Time // when they were first asked of it
	sides [2]side
}

// side is what one of them has.
type side struct {
	last      time.Time // it admitted the last hit
	remaining int64     // what remained then
	denied    bool      // it has denied hits since
	admitted  int64     // cost of the hits of the window
	ends      time.Time // when the window ends: one that is fixed, or one that began with a hit
}

var names = [2]string{"-from", "-to"}

// compare returns why the verdicts differ; empty: they do not, or neither is one.
func (p *pair) compare(now time.Time, s *sliding, cost int64, answers ...Answer) (cause string) {
	before := p.sides
	for i, a := range answers {
		s.note(now, i, a)
		p.sides[i].note(now, cost, a)
	}
	switch from, to := answers[0], answers[1]; {
	case from.failed() && to.failed():
	case from.failed():
		return fmt.Sprintf("%s gives no verdict: %s", names[0], from.Verdict)
	case to.failed():
		return fmt.Sprintf("%s gives no verdict: %s", names[1], to.Verdict)
	case from.admits() && !to.admits():
		return p.why(now, s, cost, before, 0, from, 1, to)
	case to.admits() && !from.admits():
		return p.why(now, s, cost, before, 1, to, 0, from)
	}
	return ""
}

// note notes an answer.
func (s *side) note(now time.Time, cost int64, a Answer) {
	switch {
	case a.failed() || cost == 0 || a.limit == nil:
	case !a.admits():
		s.denied = true
	default:
		if !now.Before(s.ends) {
			s.admitted, s.ends = 0, now.Add(a.window)
			if a.isFixed(now) {
				s.ends = now.Add(time.Duration(a.Reset) * time.Second)
			}
		}
		s.last, s.remaining, s.denied = now, int64(a.Remaining), false
		s.admitted += cost
	}
}

// slack is how much the end of a window may differ from a multiple of its length: answers take a while, have whole
// seconds, and come from other clocks.
const slack = 1500 * time.Millisecond

// isFixed reports whether the window ends at a multiple of its length, as windows do that follow one another.
func (a Answer) isFixed(now time.Time) bool {
	if a.Reset <= 0 || a.window == 0 {
		return false
	}
	beyond := time.Duration(now.Add(time.Duration(a.Reset)*time.Second).UnixNano()) % a.window
	return beyond < slack || a.window-beyond < slack
}

// why returns why one side admits what the other one denies.
func (p *pair) why(now time.Time, s *sliding, cost int64, before [2]side, i int, admits Answer, j int, denies Answer) string {
	said := func(format string) string { return fmt.Sprintf(format, names[i], names[j]) }
	switch {
	case admits.limit == nil && admits.Remaining == math.MaxUint32:
		return said("unlimited at %s, limited at %s")
	case admits.limit == nil:
		return said("no limit found at %s, or its store did not answer; there is one at %s")
	case denies.limit == nil:
		return said("admitted at %s; no limit found at %s, or its store did not answer")
	case admits.limit.RequestsPerUnit != denies.limit.RequestsPerUnit || admits.window != denies.window:
		return fmt.Sprintf("different limits: %s at %s, %s at %s", admits.Limit, names[i], denies.Limit, names[j])
	case cost == 0:
		return said("a look at a full limit: OK at %s, OVER_LIMIT at %s")
	case admits.Remaining == 0 && p.sides[i].admitted > int64(admits.limit.RequestsPerUnit):
		return said("admitted beyond the limit at %s, as in shadow mode; enforced at %s")
	}
	fixed, other := admits.isFixed(now) && !s[i][admits.Limit], denies.isFixed(now) && !s[j][denies.Limit]
	was, idle := before[j], now.Sub(before[j].last)
	begun := now.Add(time.Duration(admits.Reset)*time.Second - admits.window) // the window of the one that admits, if it is fixed
	switch {
	case was.denied && (was.remaining >= cost && idle < denies.window || !other && idle > denies.window):
		return fmt.Sprintf("denied hits count at %s, not at %s", names[j], names[i])
	case fixed && !other && p.first.Before(begun):
		return said("fixed against sliding window: that of %s has been reset, that of %s still holds earlier hits")
	case other && !fixed && now.Sub(p.first) >= admits.window:
		return said("fixed against sliding window: earlier hits have left that of %s, that of %s is full until its end")
	}
	return said("less is counted at %s than at %s")
}
