package accesslog

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The parts of a line in the combined format. A backslash in front of a quote or of another
// backslash escapes it. A line that is cut off in or behind one of the two last fields is
// taken, and so are fields behind the agent. A user that begins with "- " is a line with a
// virtual host in front.
const (
	quoted   = `(?:[^"\\\n]|\\.)*`
	word     = `(?:[^" \\\n]|\\.)*`
	request  = `(?P<request>(?P<method>` + word + `) (?P<path>(?:[^" ?\\\n]|\\.)*)(?:\?` + word + `)? ` + word + `|` + quoted + `)`
	agent    = ` "(?P<referer>` + quoted + `)(?:\\?$|" ?$|" "(?P<agent>` + quoted + `)(?:\\?$|"$|" ))`
	combined = `(?P<host>[^ \n]+) (?P<ident>[^ \n]+) (?P<user>-|(?:[^-\n]|-[^ \n]).*?) \[(?P<time>[^\]\n]*)\] "` + request +
		`" (?P<status>\d{3}) (?P<bytes>\d{1,18}|-)(?:$|` + agent + `)`
	virtualHost = `(?P<vhost>[^ \n]+):(?P<port>\d{1,4}|[1-5]\d{4}|6[0-5]\d{3}) `
)

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

// NewCommon returns the common and the combined log format: what the combined one has
// beyond the other may be missing. It is an error to ask for a field that it does not
// have; the error lists its fields.
func NewCommon(fields ...string) (Format, error) {
	const text = "the common or combined log format"
	return newKnown("combined", "^"+combined, Layout{layoutCommon}, fields, malformed("it is not in "+text), text)
}

// NewVhostCombined returns Apache's vhost_combined format: the combined one behind the name of
// the virtual host and its port, which are the fields vhost and port.
func NewVhostCombined(fields ...string) (Format, error) {
	const text = "the vhost_combined log format"
	return newKnown("vhost_combined", "^"+virtualHost+combined, Layout{layoutCommon}, fields, malformed("it is not in "+text), text)
}

// NewSSHD returns the format of OpenSSH's server in syslog, whose records are its failed
// logins by password and keyboard-interactive; all other lines are filtered. Its fields are
// host, user, method, port, and n: how often a repeated message came, empty for others.
func NewSSHD(fields ...string) (Format, error) {
	return newKnown("sshd", sshdLine, Layout{}, fields, filtered("it is no failed login"),
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
