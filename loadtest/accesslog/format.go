// Package accesslog reads logs: those of web servers in the common and the combined log
// format, JSON lines, and any lines that a regular expression takes apart; plain or
// compressed with gzip.
//
// A [Format], which [New] makes, takes a line apart into its time and some of its fields. Most callers want [ReadLog], which takes the features and the time of each line, as a
// [Mapping] of fields to kinds of features says, and goes on behind lines that are malformed.
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

// Format reads lines. It is safe for concurrent use.
type Format interface {
	// Parse reads one line, without its end: when it happened, in the year 0 where the log's times
	// have no year, and the fields that the format was asked for, in their order, "" where the
	// line has none. Errors wrap ErrMalformed or ErrFiltered.
	Parse(line string) (at time.Time, values []string, err error)
	// String says what a line of the format is, for a reader whose log has none.
	String() string
}

// Config says how the lines of a log are written, and which of their fields are wanted.
type Config struct {
	// Format is "" or "auto", or "sshd": OpenSSH's server in a syslog, whose records are its
	// failed logins by password and keyboard-interactive; all other lines are filtered. Its
	// fields are host, user, method, port, and n: how often a repeated message came, empty for
	// others.
	Format string
	// Regexp takes lines apart instead, in Go's syntax with named groups, (?P<host>\S+), which
	// are the fields. One is named time. Of several with one name, as in alternatives, the first
	// counts that holds something. It may match a part of the line; ^ and $ bind it to the ends.
	// A line that it does not match is filtered.
	Regexp string
	// TimeField is the field of JSON lines that holds the time; "": the first of
	// DefaultTimeFields that a line has.
	TimeField string
	Layout    Layout // of the times of Regexp and of JSON lines
	Fields    []string
}

// New returns the format. Auto goes by the beginning of each line. With a { it is a JSON object,
// else a line of the common or the combined log format, perhaps behind a virtual host and its
// port, as in Apache's vhost_combined. Where that lacks a field that is asked for, only JSON is
// taken. What containers and syslog daemons write in front of a line is skipped.
//
// A field of an object is named by its way, with a dot at each step into an object: client.ip is
// that of {"client": {"ip": "…"}}, and of {"client.ip": "…"} too. Numbers and booleans are taken
// as they are written, null is nothing, and an object or a list in the place of a field is a fault
// of the line.
func New(config Config) (Format, error) {
	switch {
	case config.Regexp != "":
		return newByExpression(&row{
			name: "expression", expression: config.Regexp, layout: config.Layout,
			text:     "lines that the regular expression matches, with the time as " + config.Layout.String(),
			mismatch: &fault{ErrFiltered, "the regular expression does not match"},
		}, config.Fields)
	case config.Format == "sshd":
		format, err := newByExpression(&sshd, config.Fields)
		return wrapped{format}, err
	case config.Format != "" && config.Format != "auto":
		return nil, fmt.Errorf("accesslog: a format is auto or sshd, not %q", config.Format)
	}
	json, err := newJSON(config)
	if err != nil {
		return nil, err
	}
	line, lack := newByExpression(&combined, config.Fields)
	if lack != nil {
		line = nothing{malformed("it is no JSON object, and " + strings.TrimPrefix(lack.Error(), "accesslog: "))}
	}
	return &auto{json, line}, nil
}

// nothing is a format that no line is in.
type nothing struct{ why *fault }

func (f nothing) Parse(string) (time.Time, []string, error) { return time.Time{}, nil, f.why }

func (f nothing) String() string { return "" }

// row is a format that a regular expression with named groups takes apart.
type row struct {
	name, expression string
	layout           Layout // of the group named time
	text             string // what its lines are
	mismatch         *fault // of other lines
}

const combinedText = "the common or combined log format"

var (
	combined = row{"combined format", combinedLine, TimeLayout, combinedText, malformed("it is not in " + combinedText)}
	sshd     = row{"sshd format", sshdLine, "", "failed logins of OpenSSH, as Failed password for root from 192.0.2.1 port 4711 ssh2, in a syslog",
		&fault{ErrFiltered, "it is no failed login"}}
)

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
		`" (?P<status>\d{3}|-) (?P<bytes>\d{1,18}|-)(?:$|` + agent + `)`
)

// sshdLine is a line of OpenSSH's server that says that a password was wrong: behind the
// head of a traditional syslog, of busybox's, of one with ISO times, or of RFC 5424. The name of the user is
// what the client sent, so it may hold anything; the last address is the client's.
const sshdLine = `^(?:<\d+>1? ?)?(?P<time>[A-Z]\S* +\d+ \S+|\d\S+) (?:\S+ )?(?:\w+\.\w+ )?` +
	`(?:sshd|sshd-session|sshd-auth)(?:\[\d+\]:| \S+ \S+ (?:-|\[.*?\])) ` + "(?:\ufeff)?" +
	`(?:message repeated (?P<n>\d+) times: \[ )?` +
	`Failed (?P<method>password|keyboard-interactive\S*) for (?:(?:invalid|illegal) user )?` +
	`(?P<user>.*) from (?P<host>\S+) port (?P<port>\d+)(?: ssh\d)?\]?$`

// RepeatedField is the field of the sshd format that says how often a line's message came.
const RepeatedField = "n"

// timeGroup is the name of the group that holds the time.
const timeGroup = "time"

// byExpression takes lines apart by the expression of a row.
type byExpression struct {
	*row
	compiled *regexp.Regexp
	groups   [][]int // the numbers of the groups of each field, those of the time behind them
}

// newByExpression returns the format of a row.
func newByExpression(of *row, fields []string) (Format, error) {
	compiled, err := regexp.Compile(of.expression)
	if err != nil {
		return nil, fmt.Errorf("accesslog: %w", err)
	}
	numbers := map[string][]int{}
	var known []string
	for number, name := range compiled.SubexpNames() {
		if numbers[name] = append(numbers[name], number); name != "" && name != timeGroup {
			known = append(known, name)
		}
	}
	if numbers[timeGroup] == nil {
		return nil, errors.New(`accesslog: the expression has no group named time, as in \[(?P<time>[^]]+)\]`)
	}
	f := &byExpression{row: of, compiled: compiled}
	for _, field := range fields {
		if !slices.Contains(known, field) {
			return nil, fmt.Errorf("accesslog: the %s has no field %q, but %s", of.name, field, strings.Join(known, ", "))
		}
		f.groups = append(f.groups, numbers[field])
	}
	f.groups = append(f.groups, numbers[timeGroup])
	return f, nil
}

func (f *byExpression) String() string { return f.text }

func (f *byExpression) Parse(line string) (time.Time, []string, error) {
	match := f.compiled.FindStringSubmatchIndex(line)
	if match == nil {
		return time.Time{}, nil, f.mismatch
	}
	values := make([]string, len(f.groups))
	for i, groups := range f.groups {
		for _, group := range groups { // the first that holds something
			if from, to := match[2*group], match[2*group+1]; from < to {
				values[i] = line[from:to]
				break
			}
		}
	}
	last := len(values) - 1
	at, err := f.layout.Parse(values[last])
	return at, values[:last], err
}
