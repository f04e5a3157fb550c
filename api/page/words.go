package page

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/limiter/engine"
	"github.com/counterd/counterd/internal/service"
)

// shown returns a text of a stranger's as it can be read: letters without a shape of their own, among them marks of
// direction, are written as escapes.
func shown(text string) string {
	if !strings.ContainsFunc(text, hidden) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case hidden(r):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteRune(r)
		}
		text = text[size:]
	}
	return b.String()
}

func hidden(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }

// blanks says which values begin or end in white space: a reader does not see it.
func blanks(features events.Features) (list []string) {
	for _, kind := range slices.Sorted(maps.Keys(features)) {
		value := features[kind]
		begins := strings.TrimLeftFunc(value, unicode.IsSpace) != value
		ends := strings.TrimRightFunc(value, unicode.IsSpace) != value
		switch {
		case begins && ends:
			list = append(list, "The value of "+kind+" begins and ends in white space.")
		case begins:
			list = append(list, "The value of "+kind+" begins in white space.")
		case ends:
			list = append(list, "The value of "+kind+" ends in white space.")
		}
	}
	return list
}

// brief returns the beginning of a long text.
func brief(text string) string {
	const most = 100
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

// sentence begins a text with a capital and ends it with a full stop.
func sentence(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + strings.TrimSuffix(text[size:], ".") + "."
}

// grouped writes a number with a comma between thousands.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// short writes a number as the mark of an axis.
func short(n int64) string {
	for _, unit := range []struct {
		size int64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if n >= 10*unit.size || n >= unit.size && n%(unit.size/10) == 0 {
			return strconv.FormatFloat(float64(n)/float64(unit.size), 'g', 3, 64) + unit.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// clockTime writes a moment of today, with its milliseconds where it has some.
func clockTime(t time.Time) string {
	if t.Nanosecond() >= int(time.Millisecond) {
		return t.UTC().Format("15:04:05.000 UTC")
	}
	return t.UTC().Format("15:04:05 UTC")
}

// momentAt writes a moment, with its day unless that is the day of now.
func momentAt(t, now time.Time) string {
	if t, now = t.UTC(), now.UTC(); t.Truncate(24 * time.Hour).Equal(now.Truncate(24 * time.Hour)) {
		return clockTime(t)
	}
	return t.UTC().Format("2 Jan 2006 15:04:05 UTC")
}

// interval writes an interval of whole seconds.
func interval(first, last int64, now time.Time) string {
	from, to := time.Unix(first, 0).UTC(), time.Unix(last, 0).UTC()
	if first == last {
		return momentAt(from, now)
	}
	return inUTC(momentAt(from, now)) + " to " + momentAt(to, now)
}

// inUTC leaves the zone out, for a column whose head has it.
func inUTC(moment string) string { return strings.TrimSuffix(moment, " UTC") }

// ahead writes how long something takes, by its two largest units, rounded up to a second if it is longer than one.
func ahead(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", max(d, 0).Milliseconds())
	}
	seconds := engine.CeilSeconds(d)
	var parts []string
	for _, unit := range []struct {
		length int64
		name   string
	}{{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}} {
		n := seconds / unit.length
		seconds %= unit.length
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, unit.name))
		} else if len(parts) > 0 {
			break
		}
		if len(parts) == 2 {
			break
		}
	}
	return strings.Join(parts, " ")
}

// length writes a length of time in its largest whole unit: minute, 15 minutes, 24 hours.
func length(d time.Duration) string {
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		switch n := d / unit.length; {
		case d%unit.length != 0 || n == 0:
		case n == 1 && unit.length == 24*time.Hour:
			return "24 hours"
		case n == 1:
			return unit.name
		default:
			return fmt.Sprintf("%d %ss", n, unit.name)
		}
	}
	return d.String()
}

// by writes what a limit counts by.
func by(f events.Feature) string {
	var parts []string
	for kind, value := range f.All() {
		parts = append(parts, shown(kind)+" "+brief(shown(value)))
	}
	if len(parts) == 0 {
		return "in all"
	}
	return "by " + strings.Join(parts, " and ")
}

// usage writes how much of a limit is used: 10 of 10 url_shorten in the last minute by ip 192.0.2.1.
func usage(event string, s *events.LimitState) string {
	what, within := shown(event), "in the last "+length(s.Window)
	switch {
	case s.WindowName != "":
		within = "this " + s.WindowName
		if s.WindowName == "day" {
			within = "today"
		}
	case s.Algorithm == events.Concurrency:
		what, within = "leases of "+what, "at this time"
	case s.Algorithm == events.LeakyBucket:
		within = fmt.Sprintf("in a queue that passes on %s per %s", grouped(s.Limit), length(s.Window))
	case s.Burst > 0:
		within = fmt.Sprintf("from a bucket that gets %s per %s back", grouped(s.Limit), length(s.Window))
	case s.Algorithm == events.FixedWindow:
		within = "in this window of " + length(s.Window)
	}
	return fmt.Sprintf("%s of %s %s %s %s", grouped(s.Count), grouped(s.Most()), what, within, by(s.Feature))
}

// verdictOf writes a decision in words, and how good it is: ok, warn or bad.
func verdictOf(event string, cost int64, d *events.Decision) (words, good string) {
	denies := func(s *events.LimitState) bool { return service.Denies(s) }
	switch worst := longest(d, denies); {
	case d.Allowed:
		return admitted(event, cost, d)
	case d.Unavailable:
		return "would be refused: the store did not answer, and a rule says on_error: deny.", "bad"
	case worst == nil:
		return "would be denied.", "bad"
	case worst.Listing == events.Denied && worst.Overridden:
		return "would be denied: an override denies it.", "bad"
	case worst.Listing == events.Denied:
		return "would be denied: it is on the deny list of " + worst.Name + ".", "bad"
	case worst.Most() == 0:
		return "would be denied, always: the limit " + worst.Name + " is 0.", "bad"
	case worst.Reset == events.Never:
		return fmt.Sprintf("would be denied, always: it costs %s, and %s admits %s at the most.", grouped(cost), worst.Name, grouped(worst.Most())), "bad"
	default:
		words = "would be denied: " + usage(event, worst)
		if d.RetryAfter > 0 {
			at := d.At.Add(d.RetryAfter)
			words += fmt.Sprintf("; fits again at %s, in %s", momentAt(at, d.At), ahead(d.RetryAfter))
		}
		return words + ".", "bad"
	}
}

// longest returns the limit, of those wanted, that has no room for the longest time; nil: there is none.
func longest(d *events.Decision, wanted func(*events.LimitState) bool) (found *events.LimitState) {
	for i := range d.Limits {
		s := &d.Limits[i]
		if wanted(s) && (found == nil || s.Reset > found.Reset) {
			found = s
		}
	}
	return found
}

// admitted writes why a hit is admitted.
func admitted(event string, cost int64, d *events.Decision) (words, good string) {
	if slices.ContainsFunc(d.Limits, func(s events.LimitState) bool { return s.Failed }) {
		return "would be admitted, but the store did not answer: see on_error of each limit.", "warn"
	}
	if d.Wait > 0 {
		return fmt.Sprintf("would be admitted, and wait %s for its turn.", ahead(d.Wait)), "warn"
	}
	tightest := &d.Limits[0]
	for i := range d.Limits {
		if s := &d.Limits[i]; !s.Shadow && (tightest.Shadow || s.Remaining < tightest.Remaining) {
			tightest = s
		}
	}
	if longest(d, func(s *events.LimitState) bool { return !s.Allowed }) != nil {
		return "would be admitted. A limit in shadow would deny it: that is reported, not enforced.", "warn"
	}
	if tightest.Listing == events.Allowed && tightest.Overridden {
		return "would be admitted: an override allows it.", "ok"
	}
	if tightest.Listing == events.Allowed {
		return "would be admitted: it is on the allow list of " + tightest.Name + ".", "ok"
	}
	return "would be admitted: " + usage(event, tightest) + ".", "ok"
}

// remarks writes what else there is to know of a limit's state.
func remarks(s *events.LimitState, rule *events.Rule) (list []string) {
	add := func(is bool, words string) {
		if is {
			list = append(list, words)
		}
	}
	add(s.Shadow, "In shadow: its denial is reported, not enforced.")
	add(s.Overridden && s.Listing == events.Allowed, "By a temporary override: always allowed.")
	add(s.Overridden && s.Listing == events.Denied, "By a temporary override: always denied.")
	add(s.Overridden && s.Listing == events.Unlisted, "By a temporary override, instead of the rule's rate.")
	add(!s.Overridden && s.Listing == events.Allowed, "On the rule's allow list: it is counted, and never denied.")
	add(!s.Overridden && s.Listing == events.Denied, "On the rule's deny list: it is always denied, and not counted.")
	add(s.Failed && s.OnError == events.OnErrorAllow, "The store did not answer. On_error is allow: hits are admitted uncounted.")
	add(s.Failed && s.OnError == events.OnErrorDeny, "The store did not answer. On_error is deny: hits are refused.")
	add(s.Failed && s.OnError == events.OnErrorLocal, "The store did not answer. On_error is local: this process decides by its own counters.")
	add(s.Unknown && s.Listing != events.Denied, "How much is used is unknown.")
	add(s.Incomplete, "Incomplete: the counter has not been kept for a whole window, or a server has lost a part of it. The limit may admit too much.")
	add(s.Over, fmt.Sprintf("Above the limit, which the rule permits (throttle: %s).", rule.Throttle))
	add(!s.Exact && !s.Unknown, "The count is no less than the true one.")
	return list
}
