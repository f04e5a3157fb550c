package events

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/counterd/counterd/algorithm"
	"github.com/counterd/counterd/journal"
)

// DefaultGrace is the allowance for clock skew and late round trips, where nothing else is set.
const DefaultGrace = 2 * time.Second

// LogFootprint is what a log takes that keeps the hits of a counter.
type LogFootprint struct {
	Fits  bool  // no log can be too large
	Hits  int64 // of the longest window, or of the retention, at the most
	Bytes int   // of the value, if so many hits come at equal distances
}

// LogFootprintOf returns what a counter per those kinds takes if all its limits are kept in a log.
func (e *Event) LogFootprintOf(kinds []string, grace time.Duration) LogFootprint {
	log := sharedLog{of: e}
	for i := range e.Rules {
		if slices.Equal(e.Rules[i].Per, kinds) && !e.Rules[i].Leases() {
			log.rules = append(log.rules, i)
		}
	}
	hits, _, bytes := journal.Spread(log.limits(""), log.kept("").Milliseconds(), 2*grace.Milliseconds(), e.LongestWait().Milliseconds())
	return LogFootprint{log.size("", grace) <= journal.MaxSize, hits, bytes}
}

// LogFault says that a log of a rule may be too large.
type LogFault struct {
	Rule  int    // of the event
	Value string // of the override at fault; empty: the rule itself is
	bytes int
	hits  int64
	kept  time.Duration
	tiles bool // the rule has windows that follow one another
}

func (f LogFault) Error() string {
	if f.kept == 0 {
		what, instead := "the leases take", "fewer: about 300 have room"
		if f.hits > 0 {
			what, instead = "a log of the hits of the last seconds takes", "a smaller rate, and a smaller burst or queue; or neither of these, which is algorithm: sliding-window"
		}
		return fmt.Sprintf("%s up to %d KiB, and a log has at most %d: take %s", what, (f.bytes+1023)>>10, journal.MaxSize>>10, instead)
	}
	buckets := algorithm.Default
	if f.tiles {
		buckets = algorithm.FixedWindow
	}
	return fmt.Sprintf("a log of the %d hits in %s, the retention, takes up to %d KiB, and a log has at most %d: take algorithm: %s, a smaller limit or a shorter retention", f.hits, FormatDuration(f.kept), (f.bytes+1023)>>10, journal.MaxSize>>10, buckets)
}

// sharedLog is a log as the rules that share it bound it.
type sharedLog struct {
	of    *Event
	rules []int // of the event
}

// logsOf returns the logs of an event, in the order of their names.
func logsOf(e *Event) []sharedLog {
	logs := make(map[string]sharedLog)
	for i := range e.Rules {
		if rule := &e.Rules[i]; rule.InLog() {
			log := logs[rule.CounterName()]
			log.of, log.rules = e, append(log.rules, i)
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
func (l sharedLog) faults(grace time.Duration) (faults []LogFault) {
	if bytes := l.size("", grace); bytes > journal.MaxSize {
		return []LogFault{l.fault(l.rules[0], "", bytes, grace)}
	}
	for _, i := range l.rules {
		for _, value := range l.of.Rules[i].values() {
			if bytes := l.size(value, grace); bytes > journal.MaxSize {
				faults = append(faults, l.fault(i, value, bytes, grace))
				break
			}
		}
	}
	return faults
}

// fault returns what says that the log of a value, by that rule, takes up to so many bytes.
func (l sharedLog) fault(rule int, value string, bytes int, grace time.Duration) LogFault {
	if l.leases() {
		return LogFault{Rule: rule, Value: value, bytes: bytes}
	}
	kept := l.kept(value)
	hits, _, _ := journal.Spread(l.limits(value), kept.Milliseconds(), 2*grace.Milliseconds(), 0)
	return LogFault{rule, value, bytes, hits, kept, l.of.Rules[rule].Limits[0].Windows().Algorithm.Tiles}
}

// size returns how many bytes the log of a value takes at the most.
func (l sharedLog) size(value string, grace time.Duration) (bytes int) {
	if l.leases() {
		for _, limit := range l.limits(value) {
			bytes = max(bytes, journal.LeasesSize(limit, 2*grace.Milliseconds()))
		}
		return bytes
	}
	return journal.Size(l.limits(value), l.kept(value).Milliseconds(), 2*grace.Milliseconds(), l.of.LongestWait().Milliseconds())
}

// kept returns for how long the log of a value keeps events: one of token buckets alone keeps none.
func (l sharedLog) kept(value string) time.Duration {
	if slices.ContainsFunc(l.limits(value), func(limit journal.Limit) bool { return limit.Rate == 0 }) {
		return l.of.Remembered()
	}
	return 0
}

// leases reports whether the log is of leases.
func (l sharedLog) leases() bool { return l.of.Rules[l.rules[0]].Leases() }

// limits returns the limits that bound the log of a value: those in shadow bound only one that no
// other limit bounds.
func (l sharedLog) limits(value string) []journal.Limit {
	var enforced, shadow []journal.Limit
	for _, i := range l.rules {
		rule := &l.of.Rules[i]
		list := &enforced
		if rule.Shadow {
			list = &shadow
		}
		for _, limit := range rule.limitsOf(value) {
			*list = append(*list, limit.Journal(rule.Throttle.Ceiling(limit.Most())))
		}
	}
	if len(enforced) == 0 {
		return shadow
	}
	return enforced
}

// HasLog reports whether limits per those kinds are kept in a log.
func (e *Event) HasLog(kinds []string) bool {
	return slices.ContainsFunc(e.Rules, func(rule Rule) bool {
		return rule.InLog() && !rule.Leases() && slices.Equal(rule.Per, kinds)
	})
}

// UseLogs reports whether limits are kept in logs.
func (r *Rules) UseLogs() bool {
	for _, event := range r.Events {
		if event.usesLogs() {
			return true
		}
	}
	return false
}

// LogFaults returns the limits of the event whose logs may be too large with that grace.
func LogFaults(e *Event, grace time.Duration) (faults []LogFault) {
	for _, log := range logsOf(e) {
		faults = append(faults, log.faults(grace)...)
	}
	return faults
}

// CheckLogs returns an error that lists the limits whose logs may be too large with that grace.
// Rules that were parsed have none with a grace of up to DefaultGrace.
func (r *Rules) CheckLogs(grace time.Duration) error {
	var faults []error
	for _, event := range r.All() {
		for _, fault := range LogFaults(event, grace) {
			faults = append(faults, fmt.Errorf("%w: %s, per %s: %w", ErrInvalid, event.Name, strings.Join(event.Rules[fault.Rule].Per, "+"), fault))
		}
	}
	return errors.Join(faults...)
}
