package contract

import (
	"fmt"
	"math"
	"mime"
	"net/http"
	"slices"

	"github.com/counterd/counterd/api/wire"
)

// Faults are what is wrong with an answer, in words.
type Faults []string

func (f *Faults) add(wrong bool, format string, args ...any) {
	if wrong {
		*f = append(*f, fmt.Sprintf(format, args...))
	}
}

// Never is a RetryAfter without an end.
const Never = -1

// Asked is a hit or a check that was decided.
type Asked struct {
	Cost     int64
	Check    bool
	Counters []string // of each limit, as answers name them
}

// DecisionFaults holds a decision to the rules and to itself.
func (c *Contract) DecisionFaults(asked Asked, status int, d wire.Decision) (f Faults) {
	onError := slices.ContainsFunc(d.Limits, func(s wire.LimitState) bool { return s.OnError != "" })
	switch {
	case d.Allowed:
		f.add(status != http.StatusOK, "allowed, with status %d", status)
	case status == http.StatusServiceUnavailable:
		f.add(!onError, "a 503 without on_error")
	default:
		f.add((status == http.StatusOK) != asked.Check, "denied, with status %d", status)
	}
	f.add(d.Event != c.Event, "event is %q, not %q", d.Event, c.Event)
	f.add(d.At.IsZero(), "at is missing")
	if len(d.Limits) != len(c.Limits) {
		f.add(true, "it has %d limits, the rules have %d", len(d.Limits), len(c.Limits))
		return f
	}
	roomy, known := true, true // the whole event has room, and that is known
	for i, s := range d.Limits {
		if c.Limits[i].Whole() {
			roomy, known = roomy && s.Allowed, known && s.OnError == ""
		}
	}
	allowed, least, most := true, int64(0), int64(0)
	for i, s := range d.Limits {
		l := c.Limits[i]
		f.add(s.Name != l.Name || s.Limit != l.N || s.Window != l.WindowName() || s.Shadow != l.Shadow,
			"limit %d is %s, %d in %s, the rules have %s, %d in %s", i, s.Name, s.Limit, s.Window, l.Name, l.N, l.WindowName())
		f.add(s.Algorithm != l.Algorithm, "%s counts by the algorithm %q", l.Name, s.Algorithm)
		f.add(s.Feature != asked.Counters[i], "%s counts by another feature than the hit's", l.Name)
		allowed = allowed && (s.Allowed || l.Shadow)
		if s.OnError != "" {
			continue // nothing is promised of what could not be asked
		}
		f.add(l.Tiles() && !l.Elastic && Value(s.Reset) > 1 && !l.Turns(d.At.Unix()+*s.Reset), "%s: reset is %s, and no window begins then", l.Name, OrNull(s.Reset))
		with := f.count(l, s, asked, d.Allowed, status == http.StatusServiceUnavailable)
		if !l.Elastic || known {
			f.room(l, s, l.Charge(asked.Cost), with, with <= l.Ceiling || l.Elastic && roomy)
		}
		if turn := s.Count; d.Allowed && l.Queues() && !l.Shadow {
			if !asked.Check {
				turn -= asked.Cost
			}
			least, most = max(least, (turn-1)*l.Window.Milliseconds()/l.N), max(most, Ceil(turn*l.Window.Milliseconds(), l.N))
		}
	}
	if wait := int64(math.Round(d.Wait * 1000)); !onError {
		f.add(wait < least || wait > most, "wait is %d ms, and its turn is in %d to %d", wait, least, most)
		may, must := d.Allowed && !asked.Check && (c.HasLeases() || d.Wait > 0), c.HasLeases() // a large log remembers no turns
		f.add(d.Reservation != "" && !may || d.Reservation == "" && may && must, "allowed is %t, and the reservation is %q", d.Allowed, d.Reservation)
	}
	f.add(d.Allowed != allowed, "allowed is %t, and its limits together say %t", d.Allowed, allowed)
	f.add(OrNull(d.RetryAfter) != OrNull(c.RetryAfter(d)), "retry_after is %s, and by the resets of the limits that deny it is %s",
		OrNull(d.RetryAfter), OrNull(c.RetryAfter(d)))
	slides := slices.ContainsFunc(c.Limits, func(l Limit) bool { return l.Log })
	queues := slices.ContainsFunc(c.Limits, func(l Limit) bool { return l.Queues() })
	f.add(d.RetryAfterMS != 0 && (!slides || d.RetryAfterMS < 1 || d.RetryAfterMS > 999 && !queues || Value(d.RetryAfter) != Ceil(d.RetryAfterMS, 1000)),
		"retry_after_ms is %d, and retry_after is %s", d.RetryAfterMS, OrNull(d.RetryAfter))
	f.add(d.MayFitAfter != 0 && (d.Allowed || d.MayFitAfter < 1 || d.MayFitAfter >= Value(d.RetryAfter)), "may_fit_after is %d, and retry_after is %s",
		d.MayFitAfter, OrNull(d.RetryAfter))
	return f
}

// count holds the count of a limit to itself, and returns what its window holds with the hit. A
// limit that admits does so at once, unless it counts a hit that another one has denied, and
// has no room for it a second time. A log may hold others by then, which its count, of what was
// ahead of the hit, does not.
func (f *Faults) count(l Limit, s wire.LimitState, asked Asked, admitted, refused bool) (with int64) {
	limit, cost := l.Most(), l.Charge(asked.Cost)
	left := max(limit-s.Count, 0)
	f.add(s.Count < 0, "%s: count is %d", l.Name, s.Count)
	f.add(s.Remaining < 0 || s.Remaining > left, "%s: remaining is %d, which is more than is left of %d, %d counted", l.Name, s.Remaining, limit, s.Count)
	f.add(s.Over && s.Count <= limit, "%s: over, and count is %d of %d", l.Name, s.Count, limit)
	counted, full := l.CountAll && l.Bounded() && !asked.Check && !admitted && !refused, s.Count+cost > l.Ceiling
	switch {
	case !s.Allowed:
	case counted && (full || l.Log):
		f.add(s.Reset == nil || *s.Reset > l.longest()+l.Step || *s.Reset < 1 && full && s.IsExact(),
			"%s: it counts the denied hit, and has no room for it again, and reset is %s", l.Name, OrNull(s.Reset))
	default:
		f.add(Value(s.Reset) != 0, "%s: allowed, and reset is %s", l.Name, OrNull(s.Reset))
	}
	if asked.Check || !admitted && !l.CountAll {
		return s.Count + cost
	}
	f.add(s.Count < cost, "%s: count is %d, without the cost of %d", l.Name, s.Count, cost)
	f.add(s.Allowed && !s.Over && s.IsExact() && s.Count > limit, "%s: count is %d, above %d, and over is not said", l.Name, s.Count, limit)
	return s.Count
}

// longest is the longest time until the limit has room, in seconds. A token bucket may lack more than it holds, also
// what came behind the hit.
func (l Limit) longest() int64 {
	if l.Burst > 0 {
		return math.MaxInt32
	}
	return l.Length
}

// room holds what a limit says of the room that it has, and will have.
func (f *Faults) room(l Limit, s wire.LimitState, cost, with int64, fits bool) {
	f.add(s.Allowed && !fits, "%s: allowed, and with the hit it holds %d of %d", l.Name, with, l.Ceiling)
	f.add(!s.Allowed && fits, "%s: denied, and with the hit it holds %d of %d", l.Name, with, l.Ceiling)
	f.add(s.IsExact() && s.Remaining != max(l.Most()-s.Count, 0), "%s: remaining is %d, and of %d %d are counted", l.Name, s.Remaining, l.Most(), s.Count)
	never := cost > l.Ceiling
	if s.Allowed || l.Elastic && never { // which has room as soon as the whole event has
		return
	}
	f.add((s.Reset == nil) != never, "%s: denied, and reset is %s for a cost of %d", l.Name, OrNull(s.Reset), cost)
	f.add(s.Reset != nil && (*s.Reset < 1 || *s.Reset > l.longest()+l.Step), "%s: denied, and reset is %s, the window has %d seconds", l.Name, OrNull(s.Reset), l.longest())
}

// RetryAfter is what it has to be by the resets, in seconds; nil: never.
func (c *Contract) RetryAfter(d wire.Decision) *int64 {
	longest := new(int64)
	if d.Allowed {
		return longest
	}
	for i, s := range d.Limits {
		switch {
		case c.Limits[i].Shadow:
		case s.Reset == nil:
			return nil
		default:
			*longest = max(*longest, *s.Reset)
		}
	}
	return longest
}

// DenialFaults holds the rest of the answer to a denied hit: that it is a problem document.
func DenialFaults(header http.Header, denial wire.Denial) (f Faults) {
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

// Value is a number of seconds; of nil it is Never.
func Value(p *int64) int64 {
	if p == nil {
		return Never
	}
	return *p
}

// OrNull is a number of seconds as JSON has it.
func OrNull(p *int64) string {
	if p == nil {
		return "null"
	}
	return fmt.Sprint(*p)
}
