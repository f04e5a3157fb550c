package accesslog

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// timeGroup is the name of the group that holds the time.
const timeGroup = "time"

// byRegexp takes lines apart by a regular expression.
type byRegexp struct {
	expression *regexp.Regexp
	layout     Layout
	time       []int // the numbers of its groups
	names      []string
	groups     [][]int // the numbers of theirs
}

// NewRegexp returns a format that takes a line apart by a regular expression of Go's
// syntax with named groups, (?P<host>\S+), which are the fields. One is named time. Of
// several with one name, as in alternatives, the first counts that holds something. The
// expression may match a part of the line; ^ and $ bind it to the ends. A line that it
// does not match is filtered.
func NewRegexp(expression string, layout Layout, fields ...string) (Format, error) {
	compiled, err := regexp.Compile(expression)
	if err != nil {
		return nil, fmt.Errorf("accesslog: %w", err)
	}
	format := &byRegexp{expression: compiled, layout: layout, time: groupsOf(compiled, timeGroup), names: fields}
	if format.time == nil {
		return nil, errors.New(`accesslog: the expression has no group named time, as in \[(?P<time>[^]]+)\]`)
	}
	for _, name := range fields {
		groups := groupsOf(compiled, name)
		if groups == nil {
			known := slices.DeleteFunc(slices.Clone(compiled.SubexpNames()), func(name string) bool { return name == "" })
			return nil, fmt.Errorf("accesslog: the expression has no group named %q, as in (?P<%[1]s>\\S+), but %s",
				name, strings.Join(known, ", "))
		}
		format.groups = append(format.groups, groups)
	}
	return format, nil
}

// groupsOf returns the numbers of the groups of that name; nil: there are none.
func groupsOf(expression *regexp.Regexp, name string) (groups []int) {
	for i, of := range expression.SubexpNames() {
		if of == name && name != "" {
			groups = append(groups, i)
		}
	}
	return groups
}

// oneOf returns what the first of the groups holds that holds something.
func oneOf(match []string, groups []int) string {
	for _, group := range groups {
		if match[group] != "" {
			return match[group]
		}
	}
	return ""
}

func (f *byRegexp) String() string {
	return "lines that the regular expression matches, with the time as " + f.layout.String()
}

func (f *byRegexp) Parse(line string) (Record, error) {
	match := f.expression.FindStringSubmatch(line)
	if match == nil {
		return Record{}, filtered("the regular expression does not match")
	}
	at, err := f.layout.Parse(oneOf(match, f.time))
	if err != nil {
		return Record{}, err
	}
	values := make([]string, len(f.groups))
	for i, groups := range f.groups {
		values[i] = oneOf(match, groups)
	}
	return Record{at, f.names, values}, nil
}
