package events

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"
)

// Succeed returns the new rules as they take over from the old ones at the Unix
// second now. They differ from the new ones in their Revision, which is above that of
// the old ones, and in Limit.Since: it is set where
// the counter has not been kept for the whole window of the limit as the new rules
// keep it, because
//
//   - the old rules did not name its event or its kinds, or counted IPv6 by another
//     network or other hits: it was another counter;
//   - they remembered it for less than the window: what it held is gone early;
//   - they kept it in a coarser precision, or in buckets and not in a log, or the other way round.
//
// What was incomplete before stays so until its window has passed, and not longer:
// the rules know how their counters were kept by all that they succeeded. Rules
// that succeed none, as those of a file that was just read, take their counters for always kept
// where no Since says otherwise.
//
// A precision coarser than a second rounds windows outward, and Since with them: to
// the end of the bucket that now is in. Neither old nor new is changed.
func Succeed(old, new *Rules, now int64) *Rules {
	next := *new
	next.Events = make(map[string]*Event, len(new.Events))
	for name, event := range new.Events {
		next.Events[name] = event.succeed(old.Events[name], now)
	}
	if new.Revision < old.Revision { // such as a file of before that was put back
		next.setRevision(old.Revision + 1)
	}
	return &next
}

// succeed returns the event as it takes over from what it was, nil where there was
// none.
func (e *Event) succeed(was *Event, now int64) *Event {
	next := *e
	next.kept = make(map[string]kept)
	next.Rules = slices.Clone(e.Rules)
	before, remembered := was.keptPer(), e.Remembered()
	for i := range next.Rules {
		rule := &next.Rules[i]
		counter := rule.CounterName()
		k, known := next.kept[counter]
		if !known {
			k = before[counter].becomes(rule.keeping(remembered), now)
			next.kept[counter] = k
		}
		rule.Limits = k.since(rule, rule.Limits, now)
		rule.Overrides = maps.Clone(rule.Overrides)
		for value, limits := range rule.Overrides {
			rule.Overrides[value] = k.since(rule, limits, now)
		}
	}
	return &next
}

// CounterName names the rule's counters among those of its event.
func (r *Rule) CounterName() string {
	per := strings.Join(r.Per, "+")
	switch {
	case r.Leases():
		return per + " in leases"
	case r.InLog():
		return per + " in a log"
	}
	return per
}

// keeping is how the counters of some kinds are kept. The zero keeping is for no
// time: no rule names them, and hits are not counted.
type keeping struct {
	retention  time.Duration
	precision  Precision
	ipv6Prefix int // 0 where no kind is an address
	nat64      string
	count      Count
}

func (r *Rule) keeping(remembered time.Duration) keeping {
	k := keeping{retention: remembered, precision: r.Precision, count: r.Count}
	if slices.Contains(r.Per, KindIP) {
		k.ipv6Prefix, k.nat64 = r.CountedPrefix(), fmt.Sprint(r.NAT64)
	}
	return k
}

// kept is how counters are kept now and were before, as far back and as far as
// that bears on any limit.
type kept struct {
	keeping
	from   int64   // the Unix second from which they are the same counters; 0: always
	lapses []lapse // each of them hurts some limit longer than any other does
}

// lapse is a time in which counters were kept for less long, or less finely.
type lapse struct {
	until     int64 // Unix second
	retention time.Duration
	precision Precision
}

// hurts reports whether a limit misses what was counted in the lapse.
func (l lapse) hurts(window time.Duration, precision Precision) bool {
	return l.retention < window || l.precision > precision
}

// keptPer returns how the event's counters were kept, by their names.
func (e *Event) keptPer() map[string]kept {
	switch {
	case e == nil:
		return nil
	case e.kept != nil:
		return e.kept
	}
	// Rules made by hand say it by Since.
	all := make(map[string]kept)
	remembered := e.Remembered()
	for i := range e.Rules {
		rule := &e.Rules[i]
		counter := rule.CounterName()
		k, known := all[counter]
		if !known {
			k.keeping = rule.keeping(remembered)
		}
		for limits := range rule.limits() {
			for _, limit := range limits {
				if limit.Since != 0 {
					k.lapses = append(k.lapses, lapse{limit.Since, limit.Span(rule.Throttle.Ceiling(limit.Most())) - time.Second, k.precision})
				}
			}
		}
		all[counter] = k
	}
	return all
}

// limits yields the rule's limits and those of each override.
func (r *Rule) limits() iter.Seq[[]Limit] {
	return func(yield func([]Limit) bool) {
		if !yield(r.Limits) {
			return
		}
		for _, limits := range r.Overrides {
			if !yield(limits) {
				return
			}
		}
	}
}

// becomes returns how counters are kept whose keeping changes at the Unix second
// now.
func (k kept) becomes(next keeping, now int64) kept {
	if k.ipv6Prefix != next.ipv6Prefix || k.nat64 != next.nat64 || k.count != next.count {
		return kept{keeping: next, from: now}
	}
	changed := kept{keeping: next, from: k.from}
	ended := lapse{now, k.retention, k.precision}
	for _, l := range k.lapses {
		past := l.until+int64(MaxRetention/time.Second) <= now
		// Whatever limit l hurts, the lapse that ends now hurts too, and longer.
		outdone := k.keeping != next && l.retention >= ended.retention && l.precision <= ended.precision
		if !past && !outdone {
			changed.lapses = append(changed.lapses, l)
		}
	}
	if k.keeping != next {
		changed.lapses = append(changed.lapses, ended)
	}
	return changed
}

// since returns limits of the rule with their Since.
func (k kept) since(rule *Rule, limits []Limit, now int64) []Limit {
	limits = slices.Clone(limits)
	for i := range limits {
		limit := &limits[i]
		span, precision := limit.Span(rule.Throttle.Ceiling(limit.Most())), rule.Precision
		limit.Since = k.from
		for _, l := range k.lapses {
			if l.hurts(span, precision) {
				limit.Since = max(limit.Since, l.until)
			}
		}
		if limit.Since != 0 {
			limit.Since = lastOf(limit.Since, precision)
		}
		if limit.Since+int64(span/time.Second) <= now {
			limit.Since = 0
		}
	}
	return limits
}

// lastOf returns the last Unix second of the bucket that the second is in.
func lastOf(second int64, precision Precision) int64 {
	length := int64(precision.Length() / time.Second)
	return second - second%length + length - 1
}
