// Package accesslog reads logs: those of web servers in the common and the combined log
// format, JSON lines, and any lines that a regular expression takes apart; plain or
// compressed with gzip.
//
// A [Format] makes a [Record] of a line: its time, and some of its fields, by name.
// [NewAuto], [NewSSHD] and [NewRegexp] make formats. Most callers want [ReadLog], which takes the features and the time of each line, as a [Mapping] of fields
// to kinds of features says, and goes on behind lines that are malformed.
package accesslog

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

var (
	// ErrMalformed is wrapped by the fault of a line that the format cannot read. No fault
	// holds a part of the line.
	ErrMalformed = errors.New("accesslog: malformed line")
	// ErrFiltered is wrapped by the fault of a line that the format leaves out on purpose.
	ErrFiltered = errors.New("accesslog: filtered line")
)

// fault is why a line has no record.
type fault struct {
	kind   error // ErrMalformed or ErrFiltered
	reason string
}

func (f *fault) Error() string { return f.kind.Error() + ": " + f.reason }

func (f *fault) Unwrap() error { return f.kind }

func malformed(reason string) *fault { return &fault{ErrMalformed, reason} }

// Format makes records of lines. It is safe for concurrent use.
type Format interface {
	// Parse reads one line, without its end. Errors wrap ErrMalformed or ErrFiltered.
	Parse(line string) (Record, error)
	// String says what a line of the format is, for a reader whose log has none.
	String() string
}

// Record is a line of a log: when it happened, and the fields that its format was asked
// for.
type Record struct {
	Time time.Time // in the year 0 where the log's times have no year

	names  []string // the format's
	values []string // parts of the line, where that is possible
}

// Field returns the value of the field; "" where the line has none of that name, or the
// format was not asked for it.
func (r Record) Field(name string) string {
	if i := slices.Index(r.names, name); i >= 0 {
		return r.values[i]
	}
	return ""
}

// auto goes by the beginning of each line.
type auto struct {
	json     Format
	combined Format
	lack     error // the field that the combined format lacks
}

// NewAuto returns a format that goes by the beginning of each line. With a { it is a JSON object,
// else a line of the common or the combined log format, perhaps behind a virtual host and its
// port, as in Apache's vhost_combined. Where that lacks a field that is asked for, only JSON is
// taken.
//
// A field of an object is named by its way, with a dot at each step into an object: client.ip is
// that of {"client": {"ip": "…"}}, and of {"client.ip": "…"} too. Numbers and booleans are taken
// as they are written, null is nothing, and an object or a list in the place of a field is a fault
// of the line.
func NewAuto(config JSONConfig) (Format, error) {
	json, err := newJSON(config)
	if err != nil {
		return nil, err
	}
	combined, lack := newCombined(config.Fields)
	return &auto{json, combined, lack}, nil
}

func (f *auto) Parse(line string) (Record, error) {
	if strings.HasPrefix(strings.TrimLeft(line, " \t"), "{") {
		return f.json.Parse(line)
	}
	record, err := Record{}, error(notCombined)
	if f.lack == nil {
		record, err = f.combined.Parse(line)
	}
	switch {
	case err != notCombined:
	case beginsWithTime(line):
		err = malformed("it begins with a time, as in a syslog: -format sshd reads failed logins of OpenSSH, -regexp any other line")
	case f.lack != nil:
		err = malformed("it is no JSON object, and " + strings.TrimPrefix(f.lack.Error(), "accesslog: "))
	}
	return record, err
}

// beginsWithTime reports whether the line begins as one of a syslog.
func beginsWithTime(line string) bool {
	if len(line) > len(syslogTime) {
		if _, err := parseAs(line[:len(syslogTime)], "", syslogTime); err == nil {
			return true
		}
	}
	first, _, _ := strings.Cut(line, " ")
	_, err := time.Parse(time.RFC3339Nano, first)
	return err == nil
}

func (f *auto) String() string {
	if f.lack != nil {
		return f.json.String()
	}
	return f.combined.String() + ", or " + f.json.String()
}

// The parts of a line in the combined format. A backslash in front of a quote or of another
// backslash escapes it. A line that is cut off in or behind one of the two last fields is
// taken, and so are fields behind the agent. An address is no virtual host, though its end may
// look like a port. A user that begins with "- " is a line with something else in front.
const (
	quoted       = `(?:[^"\\\n]|\\.)*`
	word         = `(?:[^" \\\n]|\\.)*`
	request      = `(?P<request>(?P<method>` + word + `) (?P<path>(?:[^" ?\\\n]|\\.)*)(?:\?` + word + `)? ` + word + `|` + quoted + `)`
	agent        = ` "(?P<referer>` + quoted + `)(?:\\?$|" ?$|" "(?P<agent>` + quoted + `)(?:\\?$|"$|" ))`
	virtualHost  = `(?:(?P<vhost>\[[^\] \n]+\]|[^: \n]+):(?P<port>\d{1,4}|[1-5]\d{4}|6[0-5]\d{3}) )?`
	combinedLine = `^` + virtualHost + `(?P<host>[^ \n]+) (?P<ident>[^ \n]+) (?P<user>-|(?:[^-\n]|-[^ \n]).*?) \[(?P<time>[^\]\n]*)\] "` + request +
		`" (?P<status>\d{3}) (?P<bytes>\d{1,18}|-)(?:$|` + agent + `)`
	combinedText = "the common or combined log format"
)

var notCombined = malformed("it is not in " + combinedText)

// sshdLine is a line of OpenSSH's server that says that a password was wrong: behind the
// head of a traditional syslog, of one with ISO times, or of RFC 5424. The name of the user is
// what the client sent, so it may hold anything; the last address is the client's.
const sshdLine = `^(?:<\d+>1? ?)?(?P<time>[A-Z]\S* +\d+ \S+|\d\S+) \S+ ` +
	`(?:sshd|sshd-session|sshd-auth)(?:\[\d+\]:| \S+ \S+ (?:-|\[.*?\])) ` + "(?:\ufeff)?" +
	`(?:message repeated (?P<n>\d+) times: \[ )?` +
	`Failed (?P<method>password|keyboard-interactive\S*) for (?:(?:invalid|illegal) user )?` +
	`(?P<user>.*) from (?P<host>\S+) port (?P<port>\d+)(?: ssh\d)?\]?$`

// RepeatedField is the field of the sshd format that says how often a line's message came.
const RepeatedField = "n"

func newCombined(fields []string) (Format, error) {
	return newKnown("combined", combinedLine, TimeLayout, fields, notCombined, combinedText)
}

// NewSSHD returns the format of OpenSSH's server in syslog, whose records are its failed
// logins by password and keyboard-interactive; all other lines are filtered. Its fields are
// host, user, method, port, and n: how often a repeated message came, empty for others.
func NewSSHD(fields ...string) (Format, error) {
	return newKnown("sshd", sshdLine, "", fields, &fault{ErrFiltered, "it is no failed login"},
		"failed logins of OpenSSH, as Failed password for root from 192.0.2.1 port 4711 ssh2, in a syslog")
}

// newKnown returns a format by its expression, which keeps only the groups of the fields.
func newKnown(name, expression string, layout Layout, fields []string, mismatch *fault, text string) (Format, error) {
	known := slices.DeleteFunc(namesOf(regexp.MustCompile(expression)), func(name string) bool { return name == timeGroup })
	for _, field := range fields {
		if !slices.Contains(known, field) {
			return nil, fmt.Errorf("accesslog: the %s format has no field %q, but %s", name, field, strings.Join(known, ", "))
		}
	}
	for _, field := range known {
		if !slices.Contains(fields, field) {
			expression = strings.ReplaceAll(expression, "(?P<"+field+">", "(?:")
		}
	}
	return newByExpression(regexp.MustCompile(expression), layout, fields, mismatch, text), nil
}

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
	names := namesOf(compiled)
	if !slices.Contains(names, timeGroup) {
		return nil, errors.New(`accesslog: the expression has no group named time, as in \[(?P<time>[^]]+)\]`)
	}
	for _, name := range fields {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("accesslog: the expression has no group named %q, as in (?P<%[1]s>\\S+), but %s", name, strings.Join(names, ", "))
		}
	}
	return newByExpression(compiled, layout, fields, &fault{ErrFiltered, "the regular expression does not match"},
		"lines that the regular expression matches, with the time as "+layout.String()), nil
}

func newByExpression(compiled *regexp.Regexp, layout Layout, fields []string, mismatch *fault, text string) *byExpression {
	f := &byExpression{expression: compiled, layout: layout, names: fields, groups: make([][]int, len(fields)), mismatch: mismatch, text: text}
	for number, name := range compiled.SubexpNames() {
		if name == timeGroup {
			f.time = append(f.time, number)
		}
		for i, field := range fields {
			if name == field {
				f.groups[i] = append(f.groups[i], number)
			}
		}
	}
	return f
}

// namesOf returns the names of the groups.
func namesOf(expression *regexp.Regexp) []string {
	return slices.DeleteFunc(slices.Clone(expression.SubexpNames()), func(name string) bool { return name == "" })
}

func (f *byExpression) String() string { return f.text }

func (f *byExpression) Parse(line string) (Record, error) {
	match := f.expression.FindStringSubmatchIndex(line)
	if match == nil {
		return Record{}, f.mismatch
	}
	// first returns what the first of the groups holds that holds something.
	first := func(groups []int) string {
		for _, group := range groups {
			if from, to := match[2*group], match[2*group+1]; from < to {
				return line[from:to]
			}
		}
		return ""
	}
	at, err := f.layout.Parse(first(f.time))
	if err != nil {
		return Record{}, err
	}
	values := make([]string, len(f.groups))
	for i, groups := range f.groups {
		values[i] = first(groups)
	}
	return Record{at, f.names, values}, nil
}
