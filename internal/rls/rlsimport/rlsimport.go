// Package rlsimport writes a configuration of envoyproxy/ratelimit as a rules file.
package rlsimport

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/internal/rls/rlsconfig"
)

const head = `# Imported from a configuration of envoyproxy/ratelimit by counterd import ratelimit. Its domains are events, and the
# keys of its descriptors are kinds.
#
# A comment that begins with the file and the line of a descriptor says what is decided or answered otherwise there.
# counterd has all of that, too, if it serves the configuration as it is, with -rls-config.
#
# For all limits:
# - Windows slide: none of the length, wherever it begins, holds more than the limit. Fixed windows would admit up to
#   twice as much around a turn.
# - Hits that are denied are not counted, and if one descriptor of a request is denied, none of them counts.
# - A limit applies to each descriptor that has the kinds it is per, in any order, and beside further ones. In the
#   configuration a descriptor has one limit at most: that of the most specific match of all its entries.
# - What several descriptors of a request count on one counter counts once.
# - A descriptor is refused if an entry has no value, more than 1,024 bytes or the key of another entry, and if it has a
#   limit of its own.
events:
`

// Summary counts what rules have, and what they decide or answer otherwise than a configuration: a comment each.
type Summary struct {
	Limits      int // of the rules
	Differences int // comments
	LeftOut     int // of these, limits that the rules do not have in any form
}

// Rules returns a rules file that decides as the configuration does. Its comments say where it does not. The error, if
// any, is that of a configuration too large for one rules file.
func Rules(config *rlsconfig.Config) (rules []byte, summary Summary, err error) {
	var text bytes.Buffer
	text.WriteString(head)
	domains := config.Domains()
	of := make(map[string]*event)
	for domain, name := range rename(domains, events.ValidName, events.MaxEventName) {
		of[domain] = &event{domain: domain, name: name, groups: make(map[string]*group), limits: names{}, summary: &summary}
	}
	for limit := range config.Descriptors() {
		of[limit.Domain].descriptors = append(of[limit.Domain].descriptors, limit)
	}
	for _, domain := range domains {
		of[domain].write(&text)
	}
	if _, err := rulesfile.Parse(text.Bytes()); err != nil {
		return nil, summary, fmt.Errorf("rlsimport: the rules would not be valid, import fewer files at once: %w", err)
	}
	return text.Bytes(), summary, nil
}

// event is a domain on its way to an event.
type event struct {
	text        bytes.Buffer // of its limits
	domain      string
	name        string
	descriptors []*rlsconfig.Limit
	kinds       map[string]string // by key
	groups      map[string]*group // by their kinds
	order       []*group
	limits      names
	summary     *Summary // of all events
}

// group is what becomes a rule: the limit of a path of bare keys and, of a single one, those of exact values.
type group struct {
	path  []rlsconfig.Entry
	per   []string                    // the kinds, sorted
	limit *rlsconfig.Limit            // that of the path, or the first of a value
	exact map[string]*rlsconfig.Limit // by value; those without a Rule exempt it
}

// limits reports whether the group has a limit for values without one of their own.
func (g *group) limits() bool { return g.limit != nil && g.limit.Path[len(g.limit.Path)-1].Value == "" }

func (e *event) write(to *bytes.Buffer) {
	var keys []string
	for _, d := range e.descriptors {
		for _, entry := range d.Path {
			keys = append(keys, entry.Key)
		}
	}
	e.kinds = rename(keys, events.ValidKind, events.MaxKind)
	owners, reasons := make([]*group, len(e.descriptors)), make([]string, len(e.descriptors))
	for _, bare := range []bool{true, false} { // what has values adapts
		for i, d := range e.descriptors {
			if d.Path[len(d.Path)-1].Value == "" != bare {
				continue
			}
			switch reasons[i] = e.unsayable(d); reasons[i] {
			case "":
				owners[i] = e.add(d)
			case noQuota, noShadow: // at least it does not have the limit of other values
				e.add(&rlsconfig.Limit{Path: d.Path})
			}
		}
	}
	written := make(map[*group]bool)
	for i, d := range e.descriptors {
		for _, note := range e.notes(d, owners[i], reasons[i]) {
			fmt.Fprintf(&e.text, "      # %s:%d: %s\n", inLine(d.File), d.Line, note)
		}
		if g := owners[i]; g != nil && !written[g] {
			written[g] = true
			e.rule(g)
		}
	}
	if e.name != e.domain {
		fmt.Fprintf(to, "  # Send the domain %s as %s.\n", strconv.Quote(e.domain), e.name)
	}
	for _, key := range slices.Sorted(maps.Keys(e.kinds)) {
		if kind := e.kinds[key]; kind != key {
			fmt.Fprintf(to, "  # Send the key %s as %s.\n", strconv.Quote(key), kind)
		} else if key == events.KindIP {
			fmt.Fprint(to, "  # Values of ip are addresses: others are refused.\n")
		}
	}
	fmt.Fprintf(to, "  %s:\n    limits:", word(e.name))
	e.summary.Limits += len(e.limits)
	if len(e.limits) == 0 {
		to.WriteString(" []")
	}
	to.WriteString("\n")
	e.text.WriteTo(to)
}

// kindsOf returns the kinds of a path, sorted.
func (e *event) kindsOf(path []rlsconfig.Entry) (kinds []string) {
	for _, entry := range path {
		kinds = append(kinds, e.kinds[entry.Key])
	}
	slices.Sort(kinds)
	return kinds
}

// refused reports whether a descriptor of these kinds, sorted, is an error by any rules.
func refused(kinds []string) bool {
	return len(slices.Compact(slices.Clone(kinds))) < len(kinds) || len(kinds) > events.MaxFeatureKinds
}

// unsayable returns why no rule can be the limit of a descriptor, or exempt it; nothing: one can.
func (e *event) unsayable(d *rlsconfig.Limit) string {
	per, last := e.kindsOf(d.Path), d.Path[len(d.Path)-1]
	g := e.groups[strings.Join(per, "+")]
	switch {
	case refused(per):
		return "a hit has each kind once, and at most 16"
	case strings.Contains(last.Value, "*"):
		return "rules have no wildcards"
	case len(per) > 1 && slices.ContainsFunc(d.Path, func(entry rlsconfig.Entry) bool { return entry.Value != "" }):
		return "only rules per one kind have limits of values"
	case g != nil && !slices.EqualFunc(g.path, d.Path, func(a, b rlsconfig.Entry) bool { return a.Key == b.Key }):
		return "kinds have no order"
	case g == nil && len(e.groups) == events.MaxCounters:
		return fmt.Sprintf("the limits of an event have %d lists of kinds at most", events.MaxCounters)
	case last.Value != "" && !isOverride(per[0], last.Value):
		return "the value is too long, or no address as rules have it"
	case d.Rule != nil && d.Quota:
		return noQuota
	case d.Rule != nil && g != nil && g.limit != nil && g.limit.Shadow != d.Shadow:
		return noShadow
	}
	return ""
}

const (
	noQuota  = "rules have no quota_mode"
	noShadow = "all values of a kind are in shadow, or none"
)

// isOverride reports whether a rule can have that value among its overrides. YAML's keys have at most 1024 bytes.
func isOverride(kind, value string) bool {
	rule := events.Rule{Per: []string{kind}, IPv6Prefix: 128}
	canonical, err := rule.CanonicalValue(value)
	return err == nil && canonical == value && len(strconv.Quote(value)) < 1000
}

// add adds a descriptor to its group; nil: it has none, as no rule says anything of it.
func (e *event) add(d *rlsconfig.Limit) *group {
	value := d.Path[len(d.Path)-1].Value
	if d.Rule == nil && value == "" {
		return nil
	}
	per := e.kindsOf(d.Path)
	key := strings.Join(per, "+")
	g := e.groups[key]
	if g == nil {
		g = &group{path: d.Path, per: per, exact: make(map[string]*rlsconfig.Limit)}
		e.groups[key], e.order = g, append(e.order, g)
	}
	if value != "" {
		g.exact[value] = d
	}
	if g.limit == nil && d.Rule != nil {
		g.limit = d
	}
	return g
}

// applies reports whether the rules of the group limit what a descriptor of the configuration matches.
func (g *group) applies(e *event, path []rlsconfig.Entry) bool {
	kinds := e.kindsOf(path)
	if slices.ContainsFunc(g.per, func(kind string) bool { return !slices.Contains(kinds, kind) }) {
		return false
	}
	at := slices.IndexFunc(path, func(entry rlsconfig.Entry) bool { return entry.Key == g.path[0].Key })
	if own := g.exact[path[at].Value]; own != nil {
		return own.Rule != nil
	}
	// The first entry of a descriptor matches exact values first. All others may have any.
	return g.limits() || g.limit != nil && at > 0
}

// notes returns what is decided or answered otherwise than by a descriptor.
func (e *event) notes(d *rlsconfig.Limit, owner *group, reason string) (notes []string) {
	var also, beyond []string
	for _, g := range e.order {
		per := strings.Join(g.per, "+")
		if g != owner && g.applies(e, d.Path) {
			also = append(also, per)
		}
		if last := len(d.Path) - 1; d.Path[last].Value != "" && len(g.path) > len(d.Path) &&
			slices.EqualFunc(g.path[:last+1], d.Path, func(a, b rlsconfig.Entry) bool { return a.Key == b.Key }) {
			beyond = append(beyond, per)
		}
	}
	note := func(format string, args ...any) {
		e.summary.Differences++
		notes = append(notes, inLine(d.String())+fmt.Sprintf(format, args...)+"; serve it with -rls-config")
	}
	others := strings.Join(also, ", ")
	switch {
	case refused(e.kindsOf(d.Path)):
		note(" is refused: %s", reason)
	case d.Rule != nil && owner == nil && others == "":
		note(", %s, is not limited: %s", rate(d), reason)
		e.summary.LeftOut++
	case d.Rule != nil && owner == nil:
		note(", %s, has the limits per %s instead: %s", rate(d), others, reason)
	case others != "":
		note(" has further limits here, per %s", others)
	case d.Unlimited && (owner == nil || owner.limit == nil):
		note(" is unlimited, and without a rule: a status has no limit_remaining")
	}
	if len(beyond) > 0 {
		note(" with further entries has the limits per %s", strings.Join(beyond, ", "))
	}
	if len(d.Replaces) > 0 {
		note(" replaces no other limit: rules have no replaces")
	}
	if d.Metadata != nil && (d.Rule != nil || d.Unlimited) { // without a rate_limit it has no effect there
		note(" answers without its metadata: rules have none")
	}
	return notes
}

// unreached is the rate of what is not limited.
var unreached = fmt.Sprintf("%d/s", events.MaxN)

// rule writes the rule of a group, if it limits anything.
func (e *event) rule(g *group) {
	if g.limit == nil {
		return
	}
	var kinds []string
	for _, kind := range g.per {
		kinds = append(kinds, word(kind))
	}
	per := strings.Join(kinds, ", ")
	if len(kinds) > 1 {
		per = "[" + per + "]"
	}
	fmt.Fprintf(&e.text, "      - per: %s\n", per)
	name := strings.Join(g.per, "+")
	if g.limits() {
		if given := g.limit.Name; given != "" && !strings.ContainsFunc(given, unprintable) {
			name = given
		}
		fmt.Fprintf(&e.text, "        rate: %s\n", rate(g.limit))
	} else {
		fmt.Fprintf(&e.text, "        rate: %s # other values are not limited\n", unreached)
	}
	fmt.Fprintf(&e.text, "        name: %s\n", strconv.Quote(e.limits.take(name, events.MaxLimitName)))
	if slices.Contains(g.per, events.KindIP) {
		e.text.WriteString("        ipv6_prefix: 128\n")
	}
	if g.limit.Shadow {
		e.text.WriteString("        shadow: true\n")
	}
	if len(g.exact) > 0 {
		e.text.WriteString("        overrides:\n")
	}
	for _, value := range slices.Sorted(maps.Keys(g.exact)) {
		if l := g.exact[value]; l.Rule != nil {
			fmt.Fprintf(&e.text, "          %s: %s\n", strconv.Quote(value), rate(l))
		} else {
			fmt.Fprintf(&e.text, "          %s: %s # not limited\n", strconv.Quote(value), unreached)
		}
	}
}

// rate returns the rate of a limit that has a rule.
func rate(l *rlsconfig.Limit) string { return events.FormatRate(l.Rule.Limits[0]) }
