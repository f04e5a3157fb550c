package rulesfile

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/counterd/counterd/events"
)

// place is a value of a rules file: a node and the path that led to it. The zero
// place is one that is not given.
type place struct {
	node *yaml.Node
	path string
}

func (p place) given() bool { return p.node != nil }

// item returns the place of a list's i-th value.
func (p place) item(i int) place {
	return place{p.node.Content[i], fmt.Sprintf("%s[%d]", p.path, i)}
}

// pathTo returns the path of a mapping's value.
func (p place) pathTo(key string) string {
	switch {
	case !events.ValidName(strings.ToLower(key)) || strings.Contains(key, "."):
		return p.path + "[" + strconv.Quote(key) + "]"
	case p.path == "":
		return key
	}
	return p.path + "." + key
}

// pathToHidden returns the path of a mapping's value whose key may be a feature's: faults
// are logged, and their line says which it is.
func (p place) pathToHidden() string { return p.path + "[…]" }

// reader reads values out of a rules file and collects faults.
type reader struct {
	faults   events.Faults
	faulty   map[*yaml.Node]bool // the nodes with a fault of their own
	warnings events.Faults
	nat64    []netip.Prefix      // of the rules
	warned   map[*yaml.Node]bool // the nodes with a warning
}

func (r *reader) fault(at place, format string, args ...any) {
	r.faulty[at.node] = true
	r.faults = append(r.faults, at.fault(format, args...))
}

// warn says of a valid value that it is hardly meant.
func (r *reader) warn(at place, format string, args ...any) {
	r.warnings = append(r.warnings, at.fault(format, args...))
}

func (p place) fault(format string, args ...any) events.Fault {
	return events.Fault{Line: p.node.Line, Column: p.node.Column, Path: p.path, Reason: fmt.Sprintf(format, args...)}
}

// readable reports whether the value could be read as what it has to be, so that
// something missing in it is worth a word.
func (r *reader) readable(at place) bool { return !r.faulty[at.node] }

// sound reports whether there is no fault so far in the value or below it: only
// then is it worth comparing with others. One that is not given is sound.
func (r *reader) sound(at place) bool {
	return !at.given() || !r.anyFaulty(at.node)
}

func (r *reader) anyFaulty(node *yaml.Node) bool {
	return r.faulty[node] || slices.ContainsFunc(node.Content, r.anyFaulty)
}

// plain reports whether the value is written out, and faults it if not.
func (r *reader) plain(at place) bool {
	switch {
	case at.node.Kind == yaml.AliasNode:
		r.fault(at, "aliases are not taken: write the value out")
	case at.node.Anchor != "":
		r.fault(at, "anchors are not taken: leave the & and the name behind it out")
	case at.node.Style&yaml.TaggedStyle != 0:
		r.fault(at, "tags are not taken: leave the ! and the name behind it out")
	default:
		return true
	}
	return false
}

// entry is one key of a mapping, and its value.
type entry struct {
	key  string
	name place // of the key
	at   place // of the value
}

// entries returns the keys of a mapping, in their order, the faulty ones left
// out. The names that are not shown may be, or hold, the values of features.
func (r *reader) entries(at place, shown func(key string) bool) []entry {
	if !r.plain(at) {
		return nil
	}
	if at.node.Kind != yaml.MappingNode {
		r.fault(at, "keys with values are wanted here, this is %s", describe(at.node))
		return nil
	}
	lines := make(map[string]int)
	var entries []entry
	for i := 0; i < len(at.node.Content); i += 2 {
		name := place{at.node.Content[i], at.path}
		if !r.isKey(name) {
			continue
		}
		key := name.node.Value
		name.path = at.pathToHidden()
		if shown(key) {
			name.path = at.pathTo(key)
		}
		if line, twice := lines[key]; twice {
			r.fault(name, "the key is given twice, first in line %d: leave one out", line)
			continue
		}
		lines[key] = name.node.Line
		entries = append(entries, entry{key, name, place{at.node.Content[i+1], name.path}})
	}
	return entries
}

func (r *reader) isKey(name place) bool {
	if !r.plain(name) {
		return false
	}
	if tag := name.node.ShortTag(); name.node.Kind != yaml.ScalarNode || tag == "!!null" || tag == "!!merge" {
		r.fault(name, "a key is one plain word, this is %s", describe(name.node))
		return false
	}
	return true
}

// fields returns the values of a mapping whose keys are known beforehand. What is
// likely to be one of them is taken for it, so that its value is looked at too.
func (r *reader) fields(at place, known ...string) map[string]place {
	fields := make(map[string]place)
	shown := func(key string) bool { return slices.Contains(known, key) || events.Nearest(key, known) != "" }
	for _, entry := range r.entries(at, shown) {
		if slices.Contains(known, entry.key) {
			fields[entry.key] = entry.at
		} else if likely := events.Nearest(entry.key, known); likely != "" {
			r.fault(entry.name, "unknown key: did you mean %s?", likely)
			if !fields[likely].given() {
				fields[likely] = entry.at
			}
		} else {
			r.fault(entry.name, "unknown key: known here are %s", strings.Join(known, ", "))
		}
	}
	return fields
}

// items returns the values of a list. A single word stands for a list of one.
func (r *reader) items(at place) []place {
	switch {
	case !r.plain(at):
		return nil
	case at.node.Kind == yaml.SequenceNode:
		items := make([]place, len(at.node.Content))
		for i := range items {
			items[i] = at.item(i)
		}
		return items
	case at.node.Kind == yaml.ScalarNode && at.node.ShortTag() != "!!null":
		return []place{at}
	}
	r.fault(at, "a word or a list of words is wanted here, this is %s", describe(at.node))
	return nil
}

// text returns a single value as it is written, be it a word or a number; none where it is not given.
func (r *reader) text(at place) (text string, ok bool) {
	switch {
	case !at.given() || !r.plain(at):
		return "", false
	case at.node.Kind != yaml.ScalarNode || at.node.ShortTag() == "!!null":
		r.fault(at, "a single value is wanted here, this is %s", describe(at.node))
		return "", false
	}
	return at.node.Value, true
}

// boolean returns true or false; false where it is not given.
func (r *reader) boolean(at place) bool {
	if !at.given() {
		return false
	}
	text, ok := r.text(at)
	if ok && at.node.ShortTag() != "!!bool" {
		r.fault(at, "it is true or false, without quotes")
	}
	return ok && strings.EqualFold(text, "true")
}

// number returns a whole number from low to high; 0 where it is not given.
func (r *reader) number(at place, low, high int) int {
	if !at.given() {
		return 0
	}
	text, ok := r.text(at)
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high || at.node.ShortTag() != "!!int" {
		r.fault(at, "it is a whole number from %d to %d", low, high)
		return 0
	}
	return n
}

// choice returns the index of the value among the names; 0, the default, where
// it is not given.
func choice[T ~uint8](r *reader, at place, names []string) T {
	if !at.given() {
		return 0
	}
	text, ok := r.text(at)
	if !ok {
		return 0
	}
	i := slices.Index(names, text)
	if i < 0 {
		last := len(names) - 1
		r.fault(at, "it is %s or %s", strings.Join(names[:last], ", "), names[last])
		return 0
	}
	return T(i)
}

// describe says in words what a node is.
func describe(node *yaml.Node) string {
	switch {
	case node.Kind == yaml.MappingNode:
		return "a mapping"
	case node.Kind == yaml.SequenceNode:
		return "a list"
	case node.Kind == yaml.AliasNode:
		return "an alias"
	case node.ShortTag() == "!!merge":
		return "a merge key"
	case node.ShortTag() == "!!null":
		return "empty"
	}
	return "a single value"
}
