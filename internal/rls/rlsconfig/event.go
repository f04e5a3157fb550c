package rlsconfig

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/counterd/counterd/events"
)

// maxEntries is the most bytes of entries by which a counter is named as they are.
const maxEntries = 1 << 10

// CounterOf returns the counter of the entries by which the limit counts a descriptor, and its ID. Windows of another
// length have counters of their own, as the entries of another domain have. No event of the rules has such a name.
// If the entries are long, their values are shortened.
func (l *Limit) CounterOf(domain string, window time.Duration, entries []Entry) (events.Counter, string) {
	var (
		pairSpace  [4][2]string // on the stack
		eventSpace [64]byte
	)
	pairs := pairSpace[:0]
	for _, e := range entries {
		pairs = append(pairs, [2]string{e.Key, e.Value})
	}
	if length(pairs) > maxEntries {
		l.shorten(pairs)
	}
	if length(pairs) > maxEntries { // by its keys and patterns, which are configured, or those of a limit in the request
		_, id := events.CounterOf(nil, 0, pairs...)
		pairs = append(pairs[:0], [2]string{"/hashed", events.HashValue(id)})
	}
	event := strconv.AppendInt(append(eventSpace[:0], events.DomainPrefix...), int64(window/time.Second), 10)
	event = append(append(event, '/'), domain...)
	return events.CounterOf(event, window, pairs...)
}

func length(pairs [][2]string) (n int) {
	for _, pair := range pairs {
		n += len(pair[0]) + len(pair[1])
	}
	return n
}

// shorten replaces values by their hashes, between the first and the last part of the patterns that they match: so as
// features they lead to the limit, and are not shortened again. Values that are shorter than that, or configured, stay.
func (l *Limit) shorten(pairs [][2]string) {
	for i, pair := range pairs {
		pattern := "*"
		if i < len(l.Path) { // which a limit of the request itself lacks
			pattern = cmp.Or(l.Path[i].Value, pattern)
		}
		before, after, isPattern := strings.Cut(pattern, "*")
		short := before + events.HashValue(pair[1]) + strings.ReplaceAll(after, "*", "")
		if isPattern && pair[1] != pattern && len(short) < len(pair[1]) {
			pairs[i][1] = short
		}
	}
}

// RuleIn returns the rule of the limit in an event with temporary overrides, which is the domain's of the same
// configuration; of another one it returns the limit's own.
func (l *Limit) RuleIn(event *events.Event, of *Config) *events.Rule {
	if event == nil || event.Matcher != events.Matcher(of.domains[l.Domain]) {
		return l.Rule
	}
	return &event.Rules[l.index]
}

// Match implements events.Matcher: features are entries, and those that lead to a limit, in some order, are a
// descriptor. No feature is in a descriptor twice.
func (d *domainConfig) Match(e *events.Event, list []events.Applied, features events.Features) []events.Applied {
	m := search{features: features, left: slices.Sorted(maps.Keys(features))}
	m.walk(&d.root)
	slices.SortFunc(m.found, func(a, b reached) int { return a.limit.index - b.limit.index })
	for _, one := range m.found {
		replaced := slices.ContainsFunc(m.found, func(other reached) bool {
			return slices.Contains(other.limit.Replaces, one.limit.Name)
		})
		if one.limit.Name != "" && replaced {
			continue
		}
		rule := &e.Rules[one.limit.index]
		applied := events.Applied{Rule: rule}
		applied.Counter, applied.ID = one.limit.CounterOf(one.limit.Domain, one.limit.Window(), one.counted)
		applied.Listing, applied.Overridden = rule.ExceptionOf(applied.Counter.Feature)
		list = append(list, applied)
	}
	return list
}

// search finds the limits that features lead to.
type search struct {
	features events.Features
	left     []string // the keys that are not on the way
	way      []Entry  // as counted
	found    []reached
}

type reached struct {
	limit   *Limit
	counted []Entry
}

// walk goes from a descriptor to all below it that the features match. It comes to each once, since entries with
// different keys match different descriptors.
func (m *search) walk(at *descriptor) {
	if at.limit != nil && !at.limit.Unlimited {
		m.found = append(m.found, reached{at.limit, slices.Clone(m.way)})
	}
	for _, key := range slices.Clone(m.left) {
		entry := Entry{key, m.features[key]}
		child := at.match(entry)
		if child == nil {
			continue
		}
		if child.shared != "" {
			entry.Value = child.shared
		}
		i := slices.Index(m.left, key)
		m.left, m.way = slices.Delete(m.left, i, i+1), append(m.way, entry)
		m.walk(child)
		m.left, m.way = slices.Insert(m.left, i, key), m.way[:len(m.way)-1]
	}
}

// pathKeys returns the keys of the limit's path, in their order.
func (l *Limit) pathKeys() []string {
	keys := make([]string, len(l.Path))
	for i, entry := range l.Path {
		keys[i] = entry.Key
	}
	return keys
}

// place returns where the limit is configured.
func (l *Limit) place() string { return strings.TrimPrefix(l.File+": ", ": ") + l.String() }
