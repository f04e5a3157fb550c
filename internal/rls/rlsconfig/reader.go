package rlsconfig

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/counterd/counterd/events"
)

// reader reads one file into the configuration, and collects its faults.
type reader struct {
	file       string
	config     *Config
	references *references
	faults     events.Faults
	warnings   events.Faults
}

// references are the names of limits, and where limits replace others by name.
type references struct {
	names map[Entry]bool // by domain and name
	uses  []reference
}

type reference struct {
	reader       *reader
	at           place
	domain, name string
}

// check warns of limits that replace none. Limits replace those of the same request, which has one domain.
func (l *references) check() {
	for _, use := range l.uses {
		if !l.names[Entry{use.domain, use.name}] {
			use.reader.warn(use.at, "no limit of the domain has this name: nothing is replaced")
		}
	}
}

// read reads a file.
func (r *reader) read(text []byte) {
	node, fault := parse(text)
	if fault != nil {
		fault.Path = r.pathOf("")
		r.faults = append(r.faults, *fault)
		return
	}
	root := place{node: node}
	fields := r.fields(root, "the file")
	if fields == nil {
		return
	}
	domain, ok := r.text(fields["domain"])
	if ok && domain == "" {
		r.fault(root, "domain is missing or empty: it is the domain of the requests, as in domain: ingress")
	}
	of := r.config.domains[domain]
	if of == nil {
		of = &domainConfig{event: &events.Event{Name: events.DomainPrefix + domain}}
		of.event.Matcher = of
		r.config.domains[domain] = of
	}
	r.descriptors(fields["descriptors"], &of.root, &Limit{Domain: domain})
}

// descriptors reads a list of descriptors into the one above it. Limits begin as that of the path so far.
func (r *reader) descriptors(at place, parent *descriptor, above *Limit) {
	for _, item := range r.items(at) {
		r.descriptor(item, parent, above)
	}
}

func (r *reader) descriptor(at place, parent *descriptor, above *Limit) {
	fields := r.fields(at, "a descriptor")
	key, keyRead := r.text(fields["key"])
	value, valueRead := r.text(fields["value"])
	entry := Entry{key, value}
	limit := &Limit{
		Domain:         above.Domain,
		Path:           append(slices.Clip(above.Path), entry),
		Multiplier:     1,
		Shadow:         r.boolean(fields["shadow_mode"]),
		Quota:          r.boolean(fields["quota_mode"]),
		ShareThreshold: r.boolean(fields["share_threshold"]),
		DetailedMetric: r.boolean(fields["detailed_metric"]),
		ValueToMetric:  r.boolean(fields["value_to_metric"]),
		File:           r.file,
	}
	if metadata := fields["metadata"]; metadata.given() {
		object, err := structpb.NewStruct(r.object(metadata))
		if err != nil {
			r.fault(metadata, "%v", err)
		}
		limit.Metadata = object
	}
	child := &descriptor{file: r.file, line: at.node.Line}
	if first := parent.children[entry]; keyRead && key == "" {
		r.fault(at, "key is missing or empty: it is the key of a request's descriptor, as in key: user")
	} else if keyRead && valueRead && first != nil {
		r.fault(at, "the list has this key and value twice, first in %s, line %d: remove one", first.file, first.line)
	} else {
		r.unreached(at, fields["value"], entry, parent)
		parent.add(entry, child)
	}
	if limit.ShareThreshold {
		child.shared = value
		if valueRead && !strings.Contains(value, "*") {
			r.fault(fields["share_threshold"], "share_threshold is for a wildcard, as in value: files/*: remove it, or add the *")
		}
	}
	if rate := fields["rate_limit"]; rate.given() {
		child.limit = limit
		r.config.limits = append(r.config.limits, limit)
		r.limit(rate, limit)
	}
	r.doubts(at, fields, limit, child.limit != nil)
	r.descriptors(fields["descriptors"], child, limit)
}

const (
	metricReason = "metrics are by limit, as those by value grow without bound"
	ownReason    = "it is for the rate_limit of the same descriptor, which has none"

	unlimitedReason = "the rate_limit is unlimited"
)

// doubts warns of what is valid in a descriptor, and has another effect than it seems.
func (r *reader) doubts(at place, fields map[string]place, limit *Limit, limited bool) {
	if strings.Contains(limit.Path[len(limit.Path)-1].Key, "*") {
		r.warn(fields["key"], "a * in a key is no wildcard: only a value has wildcards")
	}
	if limit.DetailedMetric {
		r.warn(fields["detailed_metric"], "detailed_metric has no effect: %s", metricReason)
	}
	if limit.ValueToMetric {
		r.warn(fields["value_to_metric"], "value_to_metric has no effect: %s", metricReason)
	}
	reason, warned := ownReason, false
	if limit.Unlimited {
		reason = unlimitedReason
	}
	for key, idle := range map[string]bool{
		"shadow_mode": limit.Shadow && (!limited || limit.Unlimited),
		"quota_mode":  limit.Quota && (!limited || limit.Unlimited),
		"metadata":    limit.Metadata != nil && !limited,
	} {
		if idle {
			r.warn(fields[key], "%s has no effect: %s", key, reason)
			warned = true
		}
	}
	if below := fields["descriptors"]; !limited && !warned && (!below.given() || len(below.node.Content) == 0) {
		r.warn(at, "the descriptor has no rate_limit and no descriptors: what it matches is not limited")
	}
}

// unreached warns of a descriptor that never applies because of one that the list has already, or the other way round.
func (r *reader) unreached(at, value place, entry Entry, parent *descriptor) {
	for _, w := range parent.wildcards[entry.Key] {
		pattern := strings.Join(w.parts, "*")
		switch all := strings.Trim(pattern, "*") == ""; {
		case entry.Value == "" && all:
			r.warn(at, "the descriptor never applies: the wildcard %s in %s, line %d, matches all values",
				pattern, w.file, w.line)
			return
		case strings.Contains(entry.Value, "*") && matches(w.parts, entry.Value):
			r.warn(value, "no value is left for this wildcard: %s in %s, line %d, matches them all",
				pattern, w.file, w.line)
			return
		}
	}
	bare, all := parent.children[Entry{Key: entry.Key}], entry.Value != "" && strings.Trim(entry.Value, "*") == ""
	if bare != nil && all {
		r.warn(value, "the descriptor without a value in %s, line %d, never applies: this wildcard matches all",
			bare.file, bare.line)
	}
}

// limit reads a rate_limit.
func (r *reader) limit(at place, l *Limit) {
	fields := r.fields(at, "rate_limit")
	if fields == nil {
		return
	}
	l.Name, _ = r.text(fields["name"])
	r.replaces(fields["replaces"], l)
	requests := fields["requests_per_unit"]
	l.N = r.number(requests, 0)
	l.Multiplier = r.number(fields["unit_multiplier"], 1)
	l.Unlimited = r.boolean(fields["unlimited"])
	l.Count = r.count(fields["count"])
	if !l.Unlimited {
		if l.Name != "" {
			r.references.names[Entry{l.Domain, l.Name}] = true
		}
		if !requests.given() {
			r.warn(at, "requests_per_unit is missing: the limit is 0 and denies each request; write 0 if it shall")
		}
		r.window(at, fields, l)
		return
	}
	for _, key := range []string{"unit", "unit_multiplier"} {
		if fields[key].given() {
			r.fault(fields[key], "an unlimited rate_limit has no %s: remove it, or unlimited", key)
		}
	}
	for _, key := range []string{"requests_per_unit", "name", "count"} {
		if fields[key].given() {
			r.warn(fields[key], "%s has no effect: %s", key, unlimitedReason)
		}
	}
}

// count reads which requests a limit counts.
func (r *reader) count(at place) events.Count {
	name, ok := r.text(at)
	switch {
	case !ok || name == "" && !at.given() || name == events.CountAdmitted.String():
	case name == events.CountAll.String():
		return events.CountAll
	default:
		r.fault(at, "count must be admitted or all; all counts denied requests also, as of reports of use")
	}
	return events.CountAdmitted
}

// window reads the unit of a limit that is not unlimited, whose multiplier is read already.
func (r *reader) window(at place, fields map[string]place, l *Limit) {
	unit := fields["unit"]
	name, ok := r.text(unit)
	if !ok {
		return
	}
	l.Unit = parseUnit(name)
	most := l.Unit.MaxMultiplier()
	switch {
	case !unit.given():
		r.fault(at, "unit is missing: it is %s", strings.Join(unitNames, ", "))
	case l.Unit == 0:
		r.fault(unit, "unknown unit%s", events.Suggest(strings.ToLower(name), unitNames))
	case most == 0:
		r.fault(unit, "a %s is longer than 30d, the longest window: take month or a shorter unit", l.Unit)
	case int64(l.Multiplier) > most:
		r.fault(fields["unit_multiplier"], "the window is longer than 30d, the longest: at most %d for the unit %s", most, l.Unit)
	}
}

// replaces reads the names of the limits that a limit replaces.
func (r *reader) replaces(at place, l *Limit) {
	for _, item := range r.items(at) {
		named := r.fields(item, "replaces")["name"]
		name, ok := r.text(named)
		switch {
		case !ok:
		case name == "":
			r.fault(item, "name is missing or empty: it is the name of the limit that is replaced")
		case name == l.Name:
			r.fault(named, "this is the limit's own name: a limit cannot replace itself")
		default:
			l.Replaces = append(l.Replaces, name)
			r.references.uses = append(r.references.uses, reference{r, named, l.Domain, name})
		}
	}
}
