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

// LogBytes returns the most bytes of a log that keeps hits for that long under the limits, with a
// throttle. A longer grace takes more.
func LogBytes(limits []Limit, throttle Throttle, retention, grace time.Duration) int {
	return logSize(appendLogLimits(nil, limits, throttle), retention, grace)
}

func logSize(limits []journal.Limit, retention, grace time.Duration) int {
	return journal.Size(limits, retention.Milliseconds(), 2*grace.Milliseconds())
}

func appendLogLimits(list []journal.Limit, limits []Limit, throttle Throttle) []journal.Limit {
	for _, limit := range limits {
		list = append(list, journal.Limit{Window: limit.Window.Milliseconds(), Ceiling: throttle.Ceiling(limit.N)})
	}
	return list
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

// logFault returns what is wrong with the log of the rules for a value. Limits in shadow bound only a
// log that no other limit bounds.
func (e *Event) logFault(rules []int, value string, grace time.Duration) (logFault, bool) {
	var enforced, shadow []journal.Limit
	for _, i := range rules {
		rule := &e.Rules[i]
		limits, overridden := rule.Overrides[value]
		if !overridden {
			limits = rule.Limits
		}
		if rule.Shadow {
			shadow = appendLogLimits(shadow, limits, rule.Throttle)
		} else {
			enforced = appendLogLimits(enforced, limits, rule.Throttle)
		}
	}
	if len(enforced) == 0 {
		enforced = shadow
	}
	bytes := logSize(enforced, e.Remembered(), grace)
	return logFault{rule: rules[0], bytes: bytes}, bytes > journal.MaxSize
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
