package rulesfile

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/eventlog/footprint"
)

// comparison finds rules of one event that contradict each other, or never decide.
type comparison struct{ *reader }

// compare faults what rules of one event contradict each other in.
func (r comparison) compare(rules []*ruleFields) {
	first := make(map[string]*ruleFields)
	counters := make(map[string]bool)
	for _, rule := range rules {
		if !rule.knownPer {
			continue
		}
		per := strings.Join(rule.Per, "+")
		if name := rule.CounterName(); !counters[name] && len(counters) == events.MaxCounters {
			r.fault(rule.at, "the limits of an event are on at most %d counters, this is one more: give some the same per", events.MaxCounters)
		} else {
			counters[name] = true
		}
		if rule.Leases() {
			r.agree(first, per+" in leases", rule, "lease")
			r.agree(first, per, rule, "ipv6_prefix")
			continue
		}
		r.agree(first, per, rule, "ipv6_prefix")
		r.agree(first, per+" but leases", rule, "count")
		if !rule.InLog() {
			r.agree(first, per+" in buckets", rule, "precision")
		}
	}
	r.elastic(rules)
	r.uniqueNames(rules)
	separateSeries(rules)
	r.compareRates(rules)
	r.warnOfSeconds(rules)
}

// warnOfIdleFields warns of fields of an event that have no effect on its limits.
func (r comparison) warnOfIdleFields(event *events.Event, fields map[string]place, from []entry) {
	kinds := event.Kinds()
	for _, entry := range from {
		if events.ValidKind(entry.key) && !slices.Contains(kinds, entry.key) {
			r.warn(entry.name, "no limit is per %s: requests are not asked for it", entry.key)
		}
	}
	if methods := fields["methods"]; methods.given() && len(event.Rules) == 0 {
		r.warn(methods, "the event has no limits: no request is a hit")
	}
	keeps := func(rule events.Rule) bool {
		return !rule.Leases() && len(rule.Limits) > 0 && rule.Limits[0].Burst == 0
	}
	retention := fields["retention"]
	if retention.given() && len(event.Rules) > 0 && !slices.ContainsFunc(event.Rules, keeps) {
		r.warn(retention, "the counters of these limits keep no events: it is for other features alone")
	}
}

// agree faults those of the fields that shape a counter of the rule, and differ from the first rule
// with that counter.
func (r comparison) agree(first map[string]*ruleFields, counter string, rule *ruleFields, names ...string) {
	earlier := first[counter]
	if earlier == nil {
		first[counter] = rule
		return
	}
	for _, field := range []struct {
		name   string
		differ bool
	}{
		{"count", rule.Count != earlier.Count},
		{"precision", rule.Precision != earlier.Precision},
		{"lease", rule.lease != earlier.lease},
		{"ipv6_prefix", rule.CountedPrefix() != earlier.CountedPrefix()},
	} {
		field.differ = field.differ && slices.Contains(names, field.name)
		at := rule.fields[field.name]
		if !field.differ || !r.sound(at) || !r.sound(earlier.fields[field.name]) {
			continue
		}
		if !at.given() {
			at = place{rule.at.node, rule.at.pathTo(field.name)}
		}
		r.fault(at, "it differs from the limit in line %d, which has the same per and so shares the counter: give both the same", earlier.at.node.Line)
	}
}

// elastic faults elastic rules that nothing bounds: they need an enforced limit
// of the whole event. In shadow, one in shadow will do.
func (r comparison) elastic(rules []*ruleFields) {
	var enforced, shadow bool
	for _, rule := range rules {
		// A rule per another kind may be the bound that was meant.
		if !rule.knownPer || len(rule.Per) == 0 && !rule.Leases() {
			shadow = true
			enforced = enforced || !rule.Shadow
		}
	}
	for _, rule := range rules {
		at := rule.fields["throttle"]
		switch {
		case rule.Throttle.Kind != events.Elastic || !rule.knownPer:
		case len(rule.Per) == 0:
			r.fault(at, "the limit of the whole event is what bounds elastic ones: make it hard or soft")
		case !shadow:
			r.fault(at, "elastic is bounded by a limit of the whole event: give the event one with per: []")
		case !enforced && !rule.Shadow:
			r.fault(at, "elastic is bounded by the limit with per: [], and that is in shadow: enforce it")
		}
	}
}

// uniqueNames faults names that a limit of another rule of the event has. Limits
// of one rule and its overrides may share theirs: only one of them decides.
func (r comparison) uniqueNames(rules []*ruleFields) {
	owners := make(map[string]*ruleFields)
	for _, rule := range rules {
		for _, limits := range rule.all() {
			for _, limit := range limits {
				if limit.Name == "" {
					continue
				}
				owner, taken := owners[limit.Name]
				if taken && owner != rule && r.sound(rule.naming()) {
					r.fault(rule.naming(), "the limit in line %d is named %s too: give one another name", owner.at.node.Line, limit.Name)
				}
				owners[limit.Name] = rule
			}
		}
	}
}

// separateSeries gives limits of different rules that would share their series in metrics their names there.
func separateSeries(rules []*ruleFields) {
	owners := make(map[string]*ruleFields) // by series; nil: there are several
	for _, rule := range rules {
		for _, limits := range rule.all() {
			for _, limit := range limits {
				for _, series := range []string{limit.Series, limit.Name} {
					if owner, taken := owners[series]; taken && owner != rule {
						owners[series] = nil
					} else {
						owners[series] = rule
					}
				}
			}
		}
	}
	for _, rule := range rules {
		for _, limits := range rule.all() {
			for i := range limits {
				if owners[limits[i].Series] == nil {
					limits[i].Series = ""
				}
			}
		}
	}
}

// covers faults a retention that is shorter than a window. Where there is none,
// it is set to cover the windows of overrides, which Remembered does not look at.
func (r comparison) covers(event *events.Event, at place, rules []*ruleFields) {
	var longest time.Duration
	var line int
	var upTo string
	overrides := false
	for _, rule := range rules {
		if _, window := rule.windows(); window > longest {
			longest, line, upTo = window, rule.at.node.Line, ""
			if rule.calendar != nil {
				upTo = "up to "
			}
		}
		overrides = overrides || len(rule.Overrides) > 0
	}
	switch {
	case at.given() && r.sound(at) && longest > event.Retention:
		r.fault(at, "it is shorter than the window of %s%s in line %d: lengthen it, or leave it out", upTo, events.FormatDuration(longest), line)
	case !at.given() && overrides:
		event.Retention = longest
	}
}

// rateField is a limit of a rules file, with its place.
type rateField struct {
	events.Limit
	rule *ruleFields
	at   place
}

// ceiling returns how many hits the limit admits at most.
func (f *rateField) ceiling() int64 { return f.rule.Throttle.Ceiling(f.N) }

// isAsStrictAs reports whether the limit denies whatever the field denies, whose window is no longer.
// Below a minute a log slides by milliseconds, which is stricter. A limit in shadow beside another
// algorithm tries its own.
func (f *rateField) isAsStrictAs(field *rateField) bool {
	if f.rule.InLog() == field.rule.InLog() {
		return f.ceiling() <= field.N
	}
	finer := field.rule.InLog() && field.Window < time.Minute
	return f.ceiling() <= field.N && !finer && !field.rule.Shadow
}

// compareRates warns of limits that never decide: where another one of the same kinds has
// no shorter window and admits no more, that one denies whatever they deny.
func (r comparison) compareRates(rules []*ruleFields) {
	together := make(map[string][]rateField)
	for _, rule := range rules {
		if !rule.knownPer || rule.Leases() || rule.burst > 0 {
			continue
		}
		for _, list := range rule.overridden {
			r.warnOfIdle(list)
		}
		// Values that are overridden or allowed have their other limits.
		if len(rule.Overrides) > 0 || !rule.Allow.Empty() {
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
	onError events.OnError
	shadow  bool
}

// warnOfIdle warns of limits of the same counters that never decide.
func (r comparison) warnOfIdle(fields []rateField) {
	fields = slices.Clone(fields)
	slices.SortStableFunc(fields, func(a, b rateField) int {
		return cmp.Or(cmp.Compare(b.LongestWindow(), a.LongestWindow()), cmp.Compare(a.ceiling(), b.ceiling()), cmp.Compare(a.N, b.N))
	})
	oneRule := !slices.ContainsFunc(fields, func(f rateField) bool { return f.rule != fields[0].rule })
	strictest := make(map[without]*rateField) // of those with a window that is no shorter
	for i := range fields {
		field := &fields[i]
		rule := field.rule
		for _, shadow := range []bool{false, true} {
			other := strictest[without{rule.OnError, shadow}]
			if other != nil && other.isAsStrictAs(field) && (!shadow || rule.Shadow) && !r.warned[field.at.node] {
				r.warned[field.at.node] = true
				r.warn(field.at, "%s never decides: %s in line %d is at least as strict", events.FormatRate(field.Limit), events.FormatRate(other.Limit), other.at.node.Line)
			}
		}
		everywhere := len(rule.Overrides) == 0 && rule.Allow.Empty()
		key := without{rule.OnError, rule.Shadow}
		slides := field.Windows().Slides() // else it lets through more around a turn
		if slides && rule.Throttle.Kind != events.Elastic && (oneRule || everywhere) && (strictest[key] == nil || field.ceiling() < strictest[key].ceiling()) {
			strictest[key] = field
		}
	}
}

// warnOfSeconds warns of months that are kept by the second, where a coarser precision has the same
// windows.
func (r comparison) warnOfSeconds(rules []*ruleFields) {
	coarsest := make(map[string]events.Precision) // of the rules with those kinds, which share it
	for _, rule := range rules {
		if per := strings.Join(rule.Per, "+"); !rule.InLog() {
			before, known := coarsest[per]
			if !known {
				before = events.Hour
			}
			coarsest[per] = rule.coarsest(before)
		}
	}
	for _, rule := range rules {
		_, longest := rule.windows()
		precision := coarsest[strings.Join(rule.Per, "+")]
		if longest > events.MaxWindow && !rule.fields["precision"].given() && precision > events.Second {
			r.warn(rule.fields["calendar"], "a month is kept by the second: precision: %s has the same windows in far less memory", precision)
		}
	}
}

// coarsest returns the coarsest precision up to that one in which the windows of the rule are the same as
// by the second.
func (rule *ruleFields) coarsest(precision events.Precision) events.Precision {
	for _, limits := range rule.all() {
		for _, limit := range limits {
			w := limit.Windows()
			for precision > events.Second && (!w.Algorithm.Tiles || limit.Window < precision.Length() ||
				w.Algorithm.Fault(w.Length, int64(precision.Length()/time.Second), w.Zone) != "") {
				precision--
			}
		}
	}
	return precision
}

// checkLogs faults rules whose logs may be too large.
func (r comparison) checkLogs(event *events.Event, rules []*ruleFields) {
	if slices.ContainsFunc(rules, func(rule *ruleFields) bool { return !rule.knownPer || !r.sound(rule.at) }) {
		return
	}
	for _, fault := range footprint.FaultsOf(event, events.DefaultGrace) {
		rule := rules[fault.Rule]
		at := rule.fields["rate"]
		if rule.Leases() {
			at = rule.fields["concurrent"]
		}
		if fault.Value != "" {
			at = rule.fields["overrides"]
		}
		r.fault(at, "%s", fault)
	}
}
