package rlsconfig

import (
	"slices"
	"strings"
)

// descriptor is a descriptor of a file and the list of descriptors below it. The root of a
// domain is one without a key.
type descriptor struct {
	limit     *Limit                // nil: there is none
	shared    string                // the wildcard pattern that is counted instead of the value; empty: the value is
	children  map[Entry]*descriptor // all of the list; a bare key has an empty value
	wildcards map[string][]wildcard // of the list, by key, in the order of the files
	file      string
	line      int
}

// wildcard is a descriptor whose value is a pattern.
type wildcard struct {
	parts []string // what is before, between and behind the asterisks
	*descriptor
}

// add adds a descriptor to the list below d.
func (d *descriptor) add(entry Entry, child *descriptor) {
	if d.children == nil {
		d.children = make(map[Entry]*descriptor)
		d.wildcards = make(map[string][]wildcard)
	}
	d.children[entry] = child
	if strings.Contains(entry.Value, "*") {
		d.wildcards[entry.Key] = append(d.wildcards[entry.Key], wildcard{strings.Split(entry.Value, "*"), child})
	}
}

// match returns the child that applies to an entry, or nil: the one of exactly that value, or the
// first wildcard that matches it, or the bare key.
func (d *descriptor) match(entry Entry) *descriptor {
	if entry.Value != "" {
		if child := d.children[entry]; child != nil {
			return child
		}
	}
	for _, w := range d.wildcards[entry.Key] {
		if matches(w.parts, entry.Value) {
			return w.descriptor
		}
	}
	return d.children[Entry{Key: entry.Key}]
}

// matches reports whether the value consists of the parts with anything in between. There are
// at least two parts.
func matches(parts []string, value string) bool {
	last := len(parts) - 1
	rest, found := strings.CutPrefix(value, parts[0])
	if !found {
		return false
	}
	if rest, found = strings.CutSuffix(rest, parts[last]); !found {
		return false
	}
	for _, part := range parts[1:last] {
		if _, rest, found = strings.Cut(rest, part); !found {
			return false
		}
	}
	return true
}

// Find returns the limit of a request's descriptor, and the entries by which it is counted: those
// of the descriptor, with the wildcard pattern instead of the value where share_threshold is set.
// Both are nil if there is no limit. Each entry takes the most specific match of its level, and
// the limit is that of the last: Find does not return to a less specific one. It allocates only
// for a wildcard pattern.
func (c *Config) Find(domain string, entries []Entry) (limit *Limit, counted []Entry) {
	of := c.domains[domain]
	if of == nil {
		return nil, nil
	}
	at := &of.root
	counted, copied := entries, false
	for i, entry := range entries {
		if at = at.match(entry); at == nil {
			return nil, nil
		}
		if at.shared == "" || at.shared == entry.Value {
			continue
		}
		if !copied {
			counted, copied = slices.Clone(entries), true
		}
		counted[i].Value = at.shared
	}
	if at.limit == nil {
		return nil, nil
	}
	return at.limit, counted
}
