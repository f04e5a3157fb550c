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
	time       int // the number of its group
	names      []string
	groups     []int // their numbers
}

// NewRegexp returns a format that takes a line apart by a regular expression of Go's
// syntax with named groups, (?P<host>\S+), which are the fields. One is named time. The
// expression may match a part of the line; ^ and $ bind it to the ends. A line that it
// does not match is malformed.
func NewRegexp(expression string, layout Layout, fields ...string) (Format, error) {
	compiled, err := regexp.Compile(expression)
	if err != nil {
		return nil, fmt.Errorf("accesslog: %w", err)
	}
	var known []string
	for _, name := range compiled.SubexpNames() {
		if name != "" {
			known = append(known, name)
		}
	}
	if !slices.Contains(known, timeGroup) {
		return nil, errors.New(`accesslog: the expression has no group named time, as in \[(?P<time>[^]]+)\]`)
	}
	format := &byRegexp{expression: compiled, layout: layout, time: compiled.SubexpIndex(timeGroup), names: fields}
	for _, name := range fields {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("accesslog: the expression has no group named %q, as in (?P<%[1]s>\\S+), but %s",
				name, strings.Join(known, ", "))
		}
		format.groups = append(format.groups, compiled.SubexpIndex(name))
	}
	return format, nil
}

func (f *byRegexp) String() string {
	return "lines that the regular expression matches, with the time as " + f.layout.String()
}

func (f *byRegexp) Parse(line string) (Record, error) {
	match := f.expression.FindStringSubmatch(line)
	if match == nil {
		return Record{}, malformed("the regular expression does not match")
	}
	at, err := f.layout.Parse(match[f.time])
	if err != nil {
		return Record{}, err
	}
	values := make([]string, len(f.groups))
	for i, group := range f.groups {
		values[i] = match[group]
	}
	return Record{at, f.names, values}, nil
}
