package rlsconfig

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/counterd/counterd/events"
)

// place is a value of a file: a node, and the path to it. The zero place is one that is not given.
type place struct {
	node *yaml.Node
	path string
}

func (p place) given() bool { return p.node != nil }

// keysOf are the keys of the format, by the mapping that has them.
var keysOf = map[string][]string{
	"the file": {"domain", "descriptors"},
	"a descriptor": {"key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode", "detailed_metric",
		"value_to_metric", "share_threshold", "metadata"},
	"rate_limit": {"unit", "unit_multiplier", "requests_per_unit", "unlimited", "name", "replaces", "count"},
	"replaces":   {"name"},
}

// homeOf returns the mapping that a misplaced key belongs in, or nothing.
func homeOf(key string) string {
	for _, home := range []string{"a descriptor", "rate_limit", "the file"} {
		if slices.Contains(keysOf[home], key) {
			return home
		}
	}
	return ""
}

// fault adds a fault of a value.
func (r *reader) fault(at place, format string, args ...any) {
	r.faults = append(r.faults, r.faultAt(at, format, args...))
}

// warn adds a warning of a value.
func (r *reader) warn(at place, format string, args ...any) {
	r.warnings = append(r.warnings, r.faultAt(at, format, args...))
}

func (r *reader) faultAt(at place, format string, args ...any) events.Fault {
	reason := fmt.Sprintf(format, args...)
	return events.Fault{Line: at.node.Line, Column: at.node.Column, Path: r.pathOf(at.path), Reason: reason}
}

// pathOf returns the path of a fault: that of the value behind the name of the file.
func (r *reader) pathOf(path string) string {
	if path == "" {
		return r.file
	}
	return r.file + ": " + path
}

// field is a key of a mapping and its value.
type field struct {
	key         string
	name, value place
}

// mapping returns the keys and values of a mapping in their order, then the further ones of its
// merge keys.
func (r *reader) mapping(at place) []field {
	if at.node.Kind != yaml.MappingNode {
		r.fault(at, "a mapping of keys to values is wanted here")
		return nil
	}
	var own, merged []field
	lines := make(map[string]int)
	for i := 0; i < len(at.node.Content); i += 2 {
		name, value := place{at.node.Content[i], at.path}, place{at.node.Content[i+1], at.path}
		key := name.node.Value
		switch line, twice := lines[key]; {
		case name.node.Kind != yaml.ScalarNode:
			r.fault(name, "a key is one word")
		case name.node.ShortTag() == "!!merge" && value.node.Kind == yaml.SequenceNode:
			for _, item := range value.node.Content {
				merged = append(merged, r.mapping(place{item, at.path})...)
			}
		case name.node.ShortTag() == "!!merge":
			merged = append(merged, r.mapping(value)...)
		case twice:
			r.fault(name, "the key is given twice, first in line %d: remove one", line)
		default:
			lines[key] = name.node.Line
			own = append(own, field{key, name, value})
		}
	}
	for _, f := range merged {
		if _, given := lines[f.key]; !given {
			lines[f.key] = f.name.node.Line
			own = append(own, f)
		}
	}
	return own
}

// fields returns the values of one of the format's mappings. A value of null is not given. A
// misspelled key is taken for the one that it resembles, so that its value is read too. What is
// no mapping has no fields, not even an empty map.
func (r *reader) fields(at place, home string) map[string]place {
	found := r.mapping(at)
	if at.node.Kind != yaml.MappingNode {
		return nil
	}
	known := keysOf[home]
	fields := make(map[string]place)
	for _, f := range found {
		key := f.key
		if !slices.Contains(known, key) {
			if other := homeOf(key); other != "" {
				r.warn(f.name, "%s has no effect here: it is a key of %s", key, other)
				continue
			}
			nearest := events.Nearest(key, known)
			var wrong string // others may be values of features
			if nearest != "" {
				wrong = fmt.Sprintf(" %q", key)
			}
			r.fault(f.name, "unknown key%s%s", wrong, events.Suggest(key, known))
			key = nearest
		}
		if _, given := fields[key]; given || f.value.node.ShortTag() == "!!null" {
			continue
		}
		f.value.path = strings.TrimPrefix(at.path+"."+key, ".")
		fields[key] = f.value
	}
	return fields
}

// items returns the mappings of a list.
func (r *reader) items(at place) []place {
	if !at.given() {
		return nil
	}
	if at.node.Kind != yaml.SequenceNode {
		r.fault(at, "a list is wanted here, each item behind a -")
		return nil
	}
	var items []place
	for i, node := range at.node.Content {
		item := place{node, fmt.Sprintf("%s[%d]", at.path, i)}
		if node.Kind == yaml.MappingNode {
			items = append(items, item)
		} else {
			r.fault(item, "an item of the list is a mapping, such as key: user")
		}
	}
	return items
}

// text returns a word or number as it is written; it is empty where it is not given. What is not
// text has a fault.
func (r *reader) text(at place) (text string, ok bool) {
	if !at.given() {
		return "", true
	}
	if at.node.Kind != yaml.ScalarNode {
		r.fault(at, "a single value is wanted here")
		return "", false
	}
	return at.node.Value, true
}

// boolean returns true or false, which YAML 1.1 also writes yes or no, on or off; false where it is not given.
func (r *reader) boolean(at place) bool {
	if !at.given() {
		return false
	}
	if at.node.Kind == yaml.ScalarNode && at.node.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0 {
		switch strings.ToLower(at.node.Value) {
		case "true", "yes", "on", "y":
			return true
		case "false", "no", "off", "n":
			return false
		}
	}
	r.fault(at, "it is true or false, without quotes")
	return false
}

// number returns a whole number that is at least low, which it is where it is not given.
func (r *reader) number(at place, low uint32) uint32 {
	if !at.given() {
		return low
	}
	n, err := strconv.ParseInt(at.node.Value, 0, 64)
	if at.node.ShortTag() != "!!int" || err != nil || n < int64(low) || n > math.MaxUint32 {
		r.fault(at, "it is a whole number from %d to %d, without quotes", low, uint32(math.MaxUint32))
		return low
	}
	return uint32(n)
}

// value returns a value of metadata: maps, slices, strings, numbers, booleans and nil. A date is a string.
func (r *reader) value(at place) any {
	switch at.node.Kind {
	case yaml.MappingNode:
		return r.object(at)
	case yaml.SequenceNode:
		list := make([]any, len(at.node.Content))
		for i, node := range at.node.Content {
			list[i] = r.value(place{node, fmt.Sprintf("%s[%d]", at.path, i)})
		}
		return list
	}
	switch at.node.ShortTag() {
	case "!!null", "!!bool", "!!int", "!!float":
		var value any
		if err := at.node.Decode(&value); err == nil {
			return value
		}
	}
	return at.node.Value
}

func (r *reader) object(at place) map[string]any {
	object := make(map[string]any)
	for _, f := range r.mapping(at) {
		f.value.path = at.path + "[…]" // a key of metadata can be anything
		object[f.key] = r.value(f.value)
	}
	return object
}
