package events

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// MaxOverrideRates is the most rates of an Override.
const MaxOverrideRates = 8

// Override replaces the lists or limits of an event for one value of a kind, until a time: see Rules.With.
type Override struct {
	// Event is the name of the event.
	Event string
	// Kind and Value are the feature, such as ip and 192.0.2.1.
	Kind, Value string
	// Listing is the list that the value is on: Allowed or Denied, for all rules per the kind, alone or with other
	// kinds. The lists of the rules have no effect then. If it is Unlisted, Rates replace limits.
	Listing Listing
	// Rates, which ParseRate reads, replace the limits that have the same windows, in rules per the kind alone. Other
	// limits stay. A limit without windows, such as a token bucket, cannot be replaced.
	Rates []Limit
	// Until is the time when the override ends, in whole seconds and at most 30 days ahead.
	Until time.Time
	// For is the duration to set the override for, instead of Until. It is zero in overrides that are in force.
	For time.Duration
	// Set is the time when the override was set. The store sets it.
	Set time.Time
	// By is the name of the token that set the override. If empty, a program set it.
	By string
	// Idle reports whether an override in force has no effect, because the rules have no limit for it.
	Idle bool
}

// Feature returns the value with its kind, as in ip:192.0.2.1.
func (o Override) Feature() string { return o.Kind + ":" + o.Value }

// String returns allow, deny, or the rates.
func (o Override) String() string {
	return cmp.Or(o.Listing.String(), strings.Join(o.FormatRates(), ", "))
}

// OverrideError is why an override cannot be. It wraps ErrInvalid.
type OverrideError struct{ Reason string }

func (e *OverrideError) Error() string { return ErrInvalid.Error() + " override: " + e.Reason }

func (e *OverrideError) Unwrap() error { return ErrInvalid }

func badOverride(format string, args ...any) error {
	return &OverrideError{fmt.Sprintf(format, args...)}
}

// CheckOverride returns the override with the value by which the event's counters know it, or why no rule of the event
// can keep it. Errors wrap ErrInvalid.
func (e *Event) CheckOverride(o Override) (Override, error) {
	value, err := e.CountedValue(o.Kind, o.Value)
	if err != nil {
		return o, err
	}
	o.Value = value
	if o.Listing != Unlisted && len(o.Rates) > 0 {
		return o, badOverride("a value that is allowed or denied has no rates")
	}
	if o.Listing == Denied && !slices.ContainsFunc(e.Rules, func(rule Rule) bool { return slices.Contains(rule.Per, o.Kind) && !rule.Shadow }) {
		return o, badOverride("all limits of %s per %s are in shadow: they deny nothing", e.Name, o.Kind)
	}
	if o.Listing != Unlisted {
		return o, nil
	}
	if len(o.Rates) == 0 || len(o.Rates) > MaxOverrideRates {
		return o, badOverride("it allows, denies, or has 1 to %d rates", MaxOverrideRates)
	}
	return o, e.checkRates(o)
}

// CountedValue returns the value by which the first rule per the kind, alone or with others, counts it. The error is a
// *FeatureError.
func (e *Event) CountedValue(kind, value string) (string, error) {
	for i := range e.Rules {
		if rule := &e.Rules[i]; slices.Contains(rule.Per, kind) {
			return rule.canonicalOf(kind, value)
		}
	}
	return "", &FeatureError{Kind: printableKind(kind), Index: -1, Reason: fmt.Sprintf("no limit of %s is per this kind", e.Name)}
}

// FormatRates writes the rates, as ParseRate reads them.
func (o Override) FormatRates() (texts []string) {
	for _, rate := range o.Rates {
		texts = append(texts, FormatRate(rate))
	}
	return texts
}

// checkRates reports rates that no limit has a window for, or for which limits that take none have it.
func (e *Event) checkRates(o Override) error {
	var faults []error
	for i, rate := range o.Rates {
		var windows []string
		found := false
		for r := range e.Rules {
			for _, limit := range e.Rules[r].overridable(o.Kind, o.Value) {
				windows = append(windows, FormatDuration(limit.Window))
				found = found || limit.Window == rate.Window
			}
		}
		slices.Sort(windows)
		twice := slices.ContainsFunc(o.Rates[:i], func(other Limit) bool { return other.Window == rate.Window })
		switch {
		case rate.N < 0 || rate.N > MaxN:
			faults = append(faults, badOverride("N is 0 to %d", MaxN))
		case len(windows) == 0:
			return badOverride("no limit of %s per %s alone counts in windows: allow or deny the value instead", e.Name, o.Kind)
		case twice:
			faults = append(faults, badOverride("there are two rates of the window %s", FormatDuration(rate.Window)))
		case !found:
			faults = append(faults, badOverride("no limit per %s has the window %s: there are %s", o.Kind, FormatDuration(rate.Window), strings.Join(slices.Compact(windows), ", ")))
		}
	}
	return errors.Join(faults...)
}

// Overridable returns limits of the value, the first of each window, that the rates of an override may replace: as many as
// an override has rates.
func (e *Event) Overridable(kind, value string) (limits []Limit) {
	for i := range e.Rules {
		canonical, err := e.Rules[i].canonicalOf(kind, value)
		if err != nil {
			continue
		}
		for _, limit := range e.Rules[i].overridable(kind, canonical) {
			known := slices.ContainsFunc(limits, func(other Limit) bool { return other.Window == limit.Window })
			if !known && len(limits) < MaxOverrideRates {
				limits = append(limits, limit)
			}
		}
	}
	return limits
}

// overridable returns the rule's limits of the value that rates may replace: they count in windows, of the kind alone.
func (r *Rule) overridable(kind, value string) (limits []Limit) {
	if len(r.Per) != 1 || r.Per[0] != kind || r.Leases() {
		return nil
	}
	for _, limit := range r.own(value) {
		if limit.Burst == 0 {
			limits = append(limits, limit)
		}
	}
	return limits
}

// With returns the rules with the overrides of each event, by its name. One that does not fit the rules has no
// effect. The rules of events that keep logs get that revision, if it is above their own: the logs are judged
// anew. The rules that With is called on do not change.
func (r *Rules) With(overrides map[string][]Override, revision uint64) *Rules {
	next := *r
	next.Events = maps.Clone(r.Events)
	for name, event := range r.Events {
		renewed := revision > r.Revision && event.usesLogs()
		if len(overrides[name]) == 0 && !renewed {
			continue
		}
		var fitting []Override
		for _, o := range overrides[name] {
			if o, err := event.CheckOverride(o); err == nil {
				fitting = append(fitting, o)
			}
		}
		copied := *event
		copied.Rules = slices.Clone(event.Rules)
		for i := range copied.Rules {
			rule := &copied.Rules[i]
			if renewed {
				rule.Revision = revision
			}
			for _, o := range fitting {
				rule.except(o)
			}
		}
		next.Events[name] = &copied
	}
	return &next
}

// Only returns the event with the overrides of its rules for that value alone.
func (e *Event) Only(value string) *Event {
	only := *e
	only.Rules = slices.Clone(e.Rules)
	for i := range only.Rules {
		rule := &only.Rules[i]
		limits, overridden := rule.Overrides[value]
		if rule.Overrides = nil; overridden {
			rule.Overrides = map[string][]Limit{value: limits}
		}
	}
	return &only
}

// feature is a kind with its value.
type feature struct{ kind, value string }

// exception is what holds for a value instead of the rule's lists and limits.
type exception struct {
	listing Listing
	limits  []Limit // nil: those of the rule
}

// except adds an override to a rule that is in no use yet.
func (r *Rule) except(o Override) {
	if !slices.Contains(r.Per, o.Kind) {
		return
	}
	value, err := r.canonicalOf(o.Kind, o.Value)
	if err != nil { // another rule counts by smaller networks
		return
	}
	made := exception{listing: o.Listing}
	if o.Listing == Unlisted {
		if made.limits = r.replaced(o, value); made.limits == nil {
			return
		}
	}
	if r.exceptions == nil {
		r.exceptions = make(map[feature]exception)
	}
	r.exceptions[feature{o.Kind, value}] = made
}

// replaced returns the limits of the value with the rates of the override; nil: it replaces none.
func (r *Rule) replaced(o Override, value string) []Limit {
	if len(r.overridable(o.Kind, value)) == 0 {
		return nil
	}
	limits, changed := slices.Clone(r.own(value)), false
	for i := range limits {
		at := slices.IndexFunc(o.Rates, func(rate Limit) bool { return rate.Window == limits[i].Window })
		if at >= 0 && limits[i].Burst == 0 {
			limits[i].N, changed = o.Rates[at].N, true
		}
	}
	if !changed {
		return nil
	}
	return limits
}

// own returns the rule's limits of a value of its one kind, whatever is overridden for a time.
func (r *Rule) own(value string) []Limit {
	if limits, overridden := r.Overrides[value]; overridden {
		return limits
	}
	return r.Limits
}

// exceptionOf returns what holds instead of the rule's lists for a hit with those features. Denied outranks Allowed.
func (r *Rule) exceptionOf(features Features) (found exception, is bool) {
	for _, kind := range r.Per {
		value, err := r.canonicalOf(kind, features[kind])
		if err != nil {
			continue
		}
		if one, known := r.exceptions[feature{kind, value}]; known && (!is || one.listing > found.listing) {
			found, is = one, true
		}
	}
	return found, is
}

// Overrides reports whether a temporary override decides by the limit, which is one that applies: by its verdict, or
// by a rate that is not the rule's.
func (a *Applied) Overrides(limit Limit) bool {
	if !a.Overridden || a.Listing != Unlisted {
		return a.Overridden
	}
	own := a.Rule.Limits
	for _, value := range a.Counter.Feature.All() {
		own = a.Rule.own(value)
	}
	return !slices.Contains(own, limit)
}

// OverriddenValues returns the values that do not have the rule's own limits, sorted.
func (r *Rule) OverriddenValues() []string {
	values := slices.Collect(maps.Keys(r.Overrides))
	for of, one := range r.exceptions {
		if one.limits != nil {
			values = append(values, of.value)
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// LimitsFor returns the limits of a value of the rule's one kind.
func (r *Rule) LimitsFor(value string) []Limit {
	if len(r.exceptions) > 0 && len(r.Per) == 1 {
		if one := r.exceptions[feature{r.Per[0], value}]; one.limits != nil {
			return one.limits
		}
	}
	return r.own(value)
}

// usesLogs reports whether limits of the event are kept in logs.
func (e *Event) usesLogs() bool {
	return slices.ContainsFunc(e.Rules, func(rule Rule) bool { return rule.InLog() })
}
