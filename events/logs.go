package events

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

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
	var rules []int
	for i := range e.Rules {
		if slices.Equal(e.Rules[i].Per, kinds) {
			rules = append(rules, i)
		}
	}
	_, tooLarge := e.logFault(rules, "", grace)
	hits, bytes := journal.Spread(e.logLimits(rules, ""), e.Remembered().Milliseconds())
	return LogFootprint{!tooLarge, hits, bytes}
}

// logFault says that a log of a rule may be too large.
type logFault struct {
	rule  int // of the event
	value string
	bytes int
}

func (f logFault) Error() string {
	return fmt.Sprintf("a log of so many hits takes up to %d KiB, and a log has at most %d: take algorithm: sliding-window, a smaller limit or a shorter retention", (f.bytes+1023)>>10, journal.MaxSize>>10)
}

// logFaults returns the rules whose logs may be too large: of rules that share a log the first, or
// the first value of each that overrides it.
func (e *Event) logFaults(grace time.Duration) (faults []logFault) {
	logs := make(map[string][]int) // the rules of each
	for i := range e.Rules {
		if rule := &e.Rules[i]; rule.inLog() {
			logs[rule.counterName()] = append(logs[rule.counterName()], i)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(logs)) {
		rules := logs[name]
		if fault, found := e.logFault(rules, "", grace); found {
			faults = append(faults, fault)
			continue
		}
		for _, i := range rules {
			for _, value := range slices.Sorted(maps.Keys(e.Rules[i].Overrides)) {
				if fault, found := e.logFault(rules, value, grace); found {
					fault.rule, fault.value = i, value
					faults = append(faults, fault)
					break
				}
			}
		}
	}
	return faults
}

// logFault returns what is wrong with the log of the rules for a value.
func (e *Event) logFault(rules []int, value string, grace time.Duration) (logFault, bool) {
	bytes := journal.Size(e.logLimits(rules, value), e.Remembered().Milliseconds(), 2*grace.Milliseconds())
	return logFault{rule: rules[0], bytes: bytes}, bytes > journal.MaxSize
}

// logLimits returns the limits that bound a log of the rules for a value: those in shadow bound only
// one that no other limit bounds.
func (e *Event) logLimits(rules []int, value string) []journal.Limit {
	var enforced, shadow []journal.Limit
	for _, i := range rules {
		rule := &e.Rules[i]
		limits, overridden := rule.Overrides[value]
		if !overridden {
			limits = rule.Limits
		}
		list := &enforced
		if rule.Shadow {
			list = &shadow
		}
		for _, limit := range limits {
			*list = append(*list, journal.Limit{Window: limit.Window.Milliseconds(), Ceiling: rule.Throttle.Ceiling(limit.N)})
		}
	}
	if len(enforced) == 0 {
		return shadow
	}
	return enforced
}

// HasLog reports whether limits per those kinds are kept in a log.
func (e *Event) HasLog(kinds []string) bool {
	return slices.ContainsFunc(e.Rules, func(rule Rule) bool { return rule.inLog() && slices.Equal(rule.Per, kinds) })
}

// UseLogs reports whether limits are kept in logs.
func (r *Rules) UseLogs() bool {
	for _, event := range r.Events {
		if slices.ContainsFunc(event.Rules, func(rule Rule) bool { return rule.inLog() }) {
			return true
		}
	}
	return false
}

// CheckLogs returns an error that lists the limits whose logs may be too large with that grace.
// Rules that were parsed have none with a grace of up to DefaultGrace.
func (r *Rules) CheckLogs(grace time.Duration) error {
	var faults []error
	for _, event := range r.All() {
		for _, fault := range event.logFaults(grace) {
			faults = append(faults, fmt.Errorf("%w: %s, per %s: %w", ErrInvalid, event.Name, strings.Join(event.Rules[fault.rule].Per, "+"), fault))
		}
	}
	return errors.Join(faults...)
}

// checkLogs faults rules whose logs may be too large.
func (r comparison) checkLogs(event *Event, rules []*ruleFields) {
	if slices.ContainsFunc(rules, func(rule *ruleFields) bool { return !rule.knownPer || !r.sound(rule.at) }) {
		return
	}
	for _, fault := range event.logFaults(DefaultGrace) {
		rule := rules[fault.rule]
		at := rule.fields["rate"]
		if fault.value != "" {
			at = rule.fields["overrides"]
		}
		r.fault(at, "%s", fault)
	}
}
