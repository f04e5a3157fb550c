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

// byExpression takes lines apart by a regular expression with named groups.
type byExpression struct {
	expression *regexp.Regexp
	layout     Layout
	time       []int // the numbers of its groups
	names      []string
	groups     [][]int // the numbers of theirs
	mismatch   *fault
	text       string
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
	if groupsOf(compiled, timeGroup) == nil {
		return nil, errors.New(`accesslog: the expression has no group named time, as in \[(?P<time>[^]]+)\]`)
	}
	for _, name := range fields {
		if groupsOf(compiled, name) == nil {
			return nil, fmt.Errorf("accesslog: the expression has no group named %q, as in (?P<%[1]s>\\S+), but %s",
				name, strings.Join(namesOf(compiled), ", "))
		}
	}
	return newByExpression(compiled, layout, fields, filtered("the regular expression does not match"),
		"lines that the regular expression matches, with the time as "+layout.String()), nil
}

func newByExpression(compiled *regexp.Regexp, layout Layout, fields []string, mismatch *fault, text string) *byExpression {
	format := &byExpression{
		expression: compiled, layout: layout, time: groupsOf(compiled, timeGroup), names: fields, mismatch: mismatch, text: text,
	}
	for _, name := range fields {
		format.groups = append(format.groups, groupsOf(compiled, name))
	}
	return format
}

// namesOf returns the names of the groups.
func namesOf(expression *regexp.Regexp) []string {
	return slices.DeleteFunc(slices.Clone(expression.SubexpNames()), func(name string) bool { return name == "" })
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

// firstOf returns what the first of the groups holds that holds something.
func firstOf(line string, match, groups []int) string {
	for _, group := range groups {
		if from, to := match[2*group], match[2*group+1]; from < to {
			return line[from:to]
		}
	}
	return ""
}

func (f *byExpression) String() string { return f.text }

func (f *byExpression) Parse(line string) (Record, error) {
	match := f.expression.FindStringSubmatchIndex(line)
	if match == nil {
		return Record{}, f.mismatch
	}
	at, err := f.layout.Parse(firstOf(line, match, f.time))
	if err != nil {
		return Record{}, err
	}
	values := make([]string, len(f.groups))
	for i, groups := range f.groups {
		values[i] = firstOf(line, match, groups)
	}
	return Record{at, f.names, values}, nil
}
