package events

import (
	"cmp"
	"slices"
	"strings"
)

// rateField is a limit of a rules file, with its place.
type rateField struct {
	Limit
	rule *ruleFields
	at   place
}

// ceiling returns how many hits the limit admits at most.
func (f *rateField) ceiling() int64 { return f.rule.Throttle.Ceiling(f.N) }

// compareRates warns of limits that never decide: where another one of the same kinds has
// no shorter window and admits no more, that one denies whatever they deny.
func (r comparison) compareRates(rules []*ruleFields) {
	together := make(map[string][]rateField)
	for _, rule := range rules {
		if !rule.knownPer {
			continue
		}
		for _, list := range rule.overridden {
			r.warnOfIdle(list)
		}
		// Values that are overridden or allowed have their other limits.
		if len(rule.Overrides) > 0 || len(rule.Allow.Networks.sorted)+len(rule.Allow.Values) > 0 {
			r.warnOfIdle(rule.rates)
		}
		per := strings.Join(rule.Per, "+")
		together[per] = append(together[per], rule.rates...)
	}
	for _, fields := range together {
		r.warnOfIdle(fields)
	}
}

// without says what limits are decided by where the store cannot be asked, and whether
// they are enforced.
type without struct {
	onError OnError
	shadow  bool
}

// warnOfIdle warns of limits of the same counters that never decide.
func (r comparison) warnOfIdle(fields []rateField) {
	fields = slices.Clone(fields)
	slices.SortStableFunc(fields, func(a, b rateField) int {
		return cmp.Or(cmp.Compare(b.Window, a.Window), cmp.Compare(a.ceiling(), b.ceiling()), cmp.Compare(a.N, b.N))
	})
	oneRule := !slices.ContainsFunc(fields, func(f rateField) bool { return f.rule != fields[0].rule })
	strictest := make(map[without]*rateField) // of those with a window that is no shorter
	for i := range fields {
		field := &fields[i]
		rule := field.rule
		for _, shadow := range []bool{false, true} {
			other := strictest[without{rule.OnError, shadow}]
			if other != nil && other.ceiling() <= field.N && (!shadow || rule.Shadow) && !r.warned[field.at.node] {
				r.warned[field.at.node] = true
				r.warn(field.at, "%s never decides: %s in line %d is at least as strict", FormatRate(field.Limit), FormatRate(other.Limit), other.at.node.Line)
			}
		}
		everywhere := len(rule.Overrides) == 0 && len(rule.Allow.Networks.sorted)+len(rule.Allow.Values) == 0
		key := without{rule.OnError, rule.Shadow}
		if rule.Throttle.Kind != Elastic && (oneRule || everywhere) && (strictest[key] == nil || field.ceiling() < strictest[key].ceiling()) {
			strictest[key] = field
		}
	}
}
