// Package footprint computes how many bytes logs take by the rules that bound them: which rules have room in a log, and
// what a counter takes in memory.
package footprint

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog/journal"
)

// Log is the size of the log of one counter.
type Log struct {
	Fits  bool  // the log can never exceed journal.MaxSize
	Hits  int64 // maximum in the longest window, or in the retention
	Bytes int   // maximum of the value if that many events come, at equal distances or late and at once
}

// OfCounter returns the size of a counter per those kinds if all its limits are kept in a log.
func OfCounter(e *events.Event, kinds []string, grace time.Duration) Log {
	log := sharedLog{event: e}
	for i := range e.Rules {
		if slices.Equal(e.Rules[i].Per, kinds) && !e.Rules[i].Leases() {
			log.rules = append(log.rules, i)
		}
	}
	limits, kept := log.limits(""), log.kept("").Milliseconds()
	waits := e.LongestWait().Milliseconds()
	hits, _, bytes := Spread(limits, kept, 2*grace.Milliseconds(), waits)
	bytes = max(bytes, lateSize(limits, kept, 2*grace.Milliseconds(), waits))
	return Log{Fits: log.size("", grace) <= journal.MaxSize, Hits: hits, Bytes: bytes}
}

// RuleFault says that a log of a rule may be too large.
type RuleFault struct {
	Rule  int    // index in the event's rules
	Value string // of the override at fault; if empty, the rule itself is at fault
	bytes int
	hits  int64
	kept  time.Duration
}

func (f RuleFault) Error() string {
	if f.kept == 0 {
		what, instead := "the leases take", "fewer: about 300 have room"
		if f.hits > 0 {
			what, instead = "a log of the hits of the last seconds takes", "a smaller rate, and a smaller burst or queue; or neither of these, which is algorithm: sliding-window"
		}
		return fmt.Sprintf("%s up to %d KiB, and a log has at most %d: take %s", what, (f.bytes+1023)>>10, journal.MaxSize>>10, instead)
	}
	return fmt.Sprintf("a log of the %d hits in %s, the retention, takes up to %d KiB, and a log has at most %d: take algorithm: %s, a smaller limit or a shorter retention", f.hits, events.FormatDuration(f.kept), (f.bytes+1023)>>10, journal.MaxSize>>10, events.DefaultAlgorithm)
}

// sharedLog is a log as the rules that share it bound it.
type sharedLog struct {
	event *events.Event
	rules []int // indexes in the event
}

// logsOf returns the logs of an event, in the order of their names.
func logsOf(e *events.Event) []sharedLog {
	logs := make(map[string]sharedLog)
	for i := range e.Rules {
		if rule := &e.Rules[i]; rule.InLog() {
			log := logs[rule.CounterName()]
			log.event, log.rules = e, append(log.rules, i)
			logs[rule.CounterName()] = log
		}
	}
	var sorted []sharedLog
	for _, name := range slices.Sorted(maps.Keys(logs)) {
		sorted = append(sorted, logs[name])
	}
	return sorted
}

// faults returns the rules that let the log grow too large: the first, or the first value of each
// that overrides it.
func (l sharedLog) faults(grace time.Duration) (faults []RuleFault) {
	if bytes := l.size("", grace); bytes > journal.MaxSize {
		return []RuleFault{l.fault(l.rules[0], "", bytes, grace)}
	}
	for _, i := range l.rules {
		for _, value := range l.event.Rules[i].OverriddenValues() {
			if bytes := l.size(value, grace); bytes > journal.MaxSize {
				faults = append(faults, l.fault(i, value, bytes, grace))
				break
			}
		}
	}
	return faults
}

// fault returns what says that the log of a value, by that rule, takes up to so many bytes.
func (l sharedLog) fault(rule int, value string, bytes int, grace time.Duration) RuleFault {
	if l.leases() {
		return RuleFault{Rule: rule, Value: value, bytes: bytes}
	}
	kept := l.kept(value)
	hits, _, _ := Spread(l.limits(value), kept.Milliseconds(), 2*grace.Milliseconds(), 0)
	return RuleFault{Rule: rule, Value: value, bytes: bytes, hits: hits, kept: kept}
}

// size returns how many bytes the log of a value takes at the most.
func (l sharedLog) size(value string, grace time.Duration) (bytes int) {
	if l.leases() {
		for _, limit := range l.limits(value) {
			bytes = max(bytes, LeasesSize(limit, 2*grace.Milliseconds()))
		}
		return bytes
	}
	return Size(l.limits(value), l.kept(value).Milliseconds(), 2*grace.Milliseconds(), l.event.LongestWait().Milliseconds())
}

// kept returns for how long the log of a value keeps events: one of token buckets alone keeps none.
func (l sharedLog) kept(value string) time.Duration {
	if slices.ContainsFunc(l.limits(value), func(limit journal.Limit) bool { return limit.Rate == 0 }) {
		return l.event.Remembered()
	}
	return 0
}

// leases reports whether the log is of leases.
func (l sharedLog) leases() bool { return l.event.Rules[l.rules[0]].Leases() }

// limits returns the limits that bound the log of a value: those in shadow bound only one that no
// other limit bounds.
func (l sharedLog) limits(value string) []journal.Limit {
	var enforced, shadow []journal.Limit
	for _, i := range l.rules {
		rule := &l.event.Rules[i]
		list := &enforced
		if rule.Shadow {
			list = &shadow
		}
		for _, limit := range rule.LimitsFor(value) {
			*list = append(*list, journal.LimitFrom(limit, rule.Throttle.Ceiling(limit.Most())))
		}
	}
	if len(enforced) == 0 {
		return shadow
	}
	return enforced
}

// FaultsOf returns the limits of the event whose logs may be too large with that grace.
func FaultsOf(e *events.Event, grace time.Duration) (faults []RuleFault) {
	for _, log := range logsOf(e) {
		faults = append(faults, log.faults(grace)...)
	}
	return faults
}

// CheckRules returns an error that lists the limits whose logs may be too large with that grace.
// Rules that were parsed have none with a grace of up to events.DefaultGrace.
func CheckRules(r *events.Rules, grace time.Duration) error {
	var faults []error
	for _, event := range r.All() {
		for _, fault := range FaultsOf(event, grace) {
			faults = append(faults, fmt.Errorf("%w: %s, per %s: %w", events.ErrInvalid, event.Name, strings.Join(event.Rules[fault.Rule].Per, "+"), fault))
		}
	}
	return errors.Join(faults...)
}
