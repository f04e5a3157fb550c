package verify

import (
	"fmt"
	"mime"
	"net/http"
	"slices"

	"github.com/counterd/counterd/api/wire"
)

// faults are what is wrong with an answer, in words.
type faults []string

func (f *faults) add(wrong bool, format string, args ...any) {
	if wrong {
		*f = append(*f, fmt.Sprintf(format, args...))
	}
}

// decisionFaults holds a decision to the rules and to itself. The features are those of
// the limits' counters, in their order; a check is charged for nothing.
func (c *contract) decisionFaults(features []string, cost int64, d wire.Decision, charged bool) (f faults) {
	f.add(d.Event != c.event, "event is %q, not %q", d.Event, c.event)
	f.add(d.At.IsZero(), "at is missing")
	if len(d.Limits) != len(c.limits) {
		f.add(true, "it has %d limits, the rules have %d", len(d.Limits), len(c.limits))
		return f
	}
	roomy, known := c.roomOfAll(d)
	allowed := true
	for i, s := range d.Limits {
		l := c.limits[i]
		f.add(s.Name != l.name || s.Limit != l.n || s.Window != l.window || s.Shadow != c.ruleOf(l).shadow,
			"limit %d is %s, %d in %s, the rules have %s, %d in %s", i, s.Name, s.Limit, s.Window, l.name, l.n, l.window)
		f.add(s.Feature != features[i], "%s counts by another feature than the hit's", l.name)
		allowed = allowed && (s.Allowed || !c.enforced(l))
		if s.OnError != "" {
			continue // nothing is promised of what could not be asked
		}
		with := f.limit(l, s, cost, charged && (d.Allowed || c.ruleOf(l).countAll))
		f = append(f, c.ownWayFaults(l, s, cost, charged && !d.Allowed)...)
		if c.ruleOf(l).elastic && !known {
			continue
		}
		fits := with <= l.ceiling || c.ruleOf(l).elastic && roomy
		f.add(s.Allowed && !fits, "%s: allowed, and with the hit it holds %d of %d", l.name, with, l.ceiling)
		f.add(!s.Allowed && fits, "%s: denied, and with the hit it holds %d of %d", l.name, with, l.ceiling)
		f = append(f, c.waitFaults(l, s, cost)...)
	}
	f.add(d.Allowed != allowed, "allowed is %t, and its limits together say %t", d.Allowed, allowed)
	f.add(!equal(d.RetryAfter, c.retryAfter(d)), "retry_after is %s, and by the resets of the limits that deny it is %s",
		orNull(d.RetryAfter), orNull(c.retryAfter(d)))
	return f
}

// waitFaults holds what a limit says of the room that it has, and will have.
func (c *contract) waitFaults(l limit, s wire.LimitState, cost int64) (f faults) {
	left := max(s.Limit-s.Count, 0)
	f.add(s.IsExact() && s.Remaining != left, "%s: remaining is %d, and of %d %d are counted", l.name, s.Remaining, s.Limit, s.Count)
	never := cost > l.ceiling
	elastic := c.ruleOf(l).elastic // and has room as soon as the whole event has
	f.add(!s.Allowed && (s.Reset == nil) != never && !(elastic && never), "%s: denied, and reset is %s for a cost of %d", l.name, orNull(s.Reset), cost)
	longest := l.length + c.ruleOf(l).step
	f.add(!s.Allowed && !(elastic && never) && s.Reset != nil && (*s.Reset < 1 || *s.Reset > longest), "%s: denied, and reset is %s, the window has %d seconds", l.name, orNull(s.Reset), l.length)
	return f
}

// ownWayFaults holds what a limit that admits says of the time when it will again: at once, but
// where it counts a hit that another has denied, and has no room for it a second time.
func (c *contract) ownWayFaults(l limit, s wire.LimitState, cost int64, charged bool) (f faults) {
	if !s.Allowed {
		return nil
	}
	if !charged || !c.ruleOf(l).countAll || !c.enforced(l) || s.Count+cost <= l.ceiling || !known(s) {
		f.add(!equal(s.Reset, new(int64)), "%s: allowed, and reset is %s", l.name, orNull(s.Reset))
		return f
	}
	f.add(s.Reset == nil || *s.Reset > l.length+c.ruleOf(l).step || *s.Reset < 1 && s.IsExact(), "%s: it counts the denied hit, and has no room for it again, and reset is %s", l.name, orNull(s.Reset))
	return f
}

// limit holds one limit's state to itself, and returns what its window holds with the hit. The
// count holds the cost of a hit that was charged.
func (f *faults) limit(l limit, s wire.LimitState, cost int64, charged bool) (with int64) {
	left := max(s.Limit-s.Count, 0)
	f.add(s.Count < 0, "%s: count is %d", l.name, s.Count)
	f.add(s.Remaining < 0 || s.Remaining > left, "%s: remaining is %d, which is more than is left of %d, %d counted", l.name, s.Remaining, s.Limit, s.Count)
	f.add(s.Over && s.Count <= s.Limit, "%s: over, and count is %d of %d", l.name, s.Count, s.Limit)
	if !charged {
		return s.Count + cost
	}
	f.add(s.Count < cost, "%s: count is %d, without the cost of %d", l.name, s.Count, cost)
	f.add(s.Allowed && !s.Over && s.IsExact() && s.Count > s.Limit, "%s: count is %d, above %d, and over is not said", l.name, s.Count, s.Limit)
	return s.Count
}

// roomOfAll reports whether the whole event has room, and whether that is known.
func (c *contract) roomOfAll(d wire.Decision) (roomy, known bool) {
	roomy, known = true, true
	for i, l := range c.limits {
		if c.whole(l) {
			roomy, known = roomy && d.Limits[i].Allowed, known && d.Limits[i].OnError == ""
		}
	}
	return roomy, known
}

// retryAfter is what it has to be by the resets.
func (c *contract) retryAfter(d wire.Decision) *int64 {
	longest := new(int64)
	if d.Allowed {
		return longest
	}
	for i, s := range d.Limits {
		switch {
		case !c.enforced(c.limits[i]):
		case s.Reset == nil:
			return nil
		default:
			*longest = max(*longest, *s.Reset)
		}
	}
	return longest
}

// denialFaults holds the rest of the answer to a denied hit.
func denialFaults(header http.Header, denial wire.Denial) (f faults) {
	media, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
	f.add(media != wire.TypeProblem, "a denial of type %s is no problem document", media)
	f.add(denial.Type != wire.TypeQuotaExceeded, "the type of the denial is %s", denial.Type)
	f.add(denial.Status != http.StatusTooManyRequests, "the status in the denial is %d", denial.Status)
	var violated []string
	for _, s := range denial.Limits {
		if !s.Allowed && !s.Shadow && (known(s) || s.Reset == nil) {
			violated = append(violated, s.Name)
		}
	}
	f.add(!slices.Equal(violated, denial.ViolatedPolicies), "violated-policies are %v, and %v deny", denial.ViolatedPolicies, violated)
	return f
}

// known reports whether the answer has the state of the limit.
func known(s wire.LimitState) bool { return s.OnError == "" || s.IsExact() || s.Count != 0 }

func equal(a, b *int64) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

func value(p *int64) int64 {
	if p == nil {
		return never
	}
	return *p
}

func orNull(p *int64) string {
	if p == nil {
		return "null"
	}
	return fmt.Sprint(*p)
}
