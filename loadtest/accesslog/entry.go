package accesslog

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// TimeLayout is how a log in these formats writes times.
const TimeLayout = "02/Jan/2006:15:04:05 -0700"

// Entry is one line of a log in the common or the combined format. Its texts are as the log has them, with the
// escapes that the server wrote (\" and \x16) left in place.
type Entry struct {
	Vhost     string    // the virtual host, in the vhost_combined format only
	Port      string    // of the virtual host
	Host      string    // the client's address, or its name where the server looked it up
	Ident     string    // by identd; nearly always "-"
	User      string    // "-" where nobody logged in
	Time      time.Time // in whole seconds, in the zone of the log
	Request   string    // "GET / HTTP/1.1", or whatever else a client sent
	Status    int       // 0 to 999
	Bytes     int64     // of the body; -1 where the log has "-"
	Combined  bool      // Referer and UserAgent were there, or the first of them
	Referer   string
	UserAgent string
}

// Parse reads one line, without its end. Fields are set apart by exactly one
// blank. What follows the user agent is left out: many servers add fields of
// their own there. A line that is cut off in or behind one of the two last
// fields is taken, for a cut loses nothing of who did what, and when.
//
// A user with a blank in it is taken too, but not one that begins with "- ":
// that is a line with a virtual host in front. Errors wrap ErrMalformed.
func Parse(line string) (Entry, error) {
	var e Entry
	var found bool
	rest := line
	if strings.ContainsRune(line, '\n') {
		return Entry{}, malformed(0, "it is more than one line")
	}
	if e.Host, rest, found = strings.Cut(rest, " "); !found || e.Host == "" {
		return Entry{}, malformed(0, "no host and blank in front")
	}
	if e.Ident, rest, found = strings.Cut(rest, " "); !found || e.Ident == "" {
		return Entry{}, malformed(1, "no ident behind the host")
	}
	if e.User, rest, found = strings.Cut(rest, " ["); !found || e.User == "" || strings.HasPrefix(e.User, "- ") {
		return Entry{}, malformed(2, "no user behind the ident")
	}
	moment, rest, found := strings.Cut(rest, `] "`)
	if !found {
		return Entry{}, malformed(3, "no time in brackets and request in quotes")
	}
	var err error
	if e.Time, err = parseTime(moment); err != nil {
		return Entry{}, err
	}
	if e.Request, rest, found = cutQuoted(rest); !found {
		return Entry{}, malformed(5, "the request has no end")
	}
	if rest, err = e.parseNumbers(rest); err != nil {
		return Entry{}, err
	}
	return e, e.parseAgent(rest)
}

// parseTime takes exactly what TimeLayout writes: time.Parse by itself would
// also take fractions of a second, an hour of one digit and a lower-case month.
func parseTime(s string) (time.Time, error) {
	t, err := time.ParseInLocation(TimeLayout, s, time.UTC)
	if local := len(TimeLayout) - len(" -0700"); err != nil || len(s) != len(TimeLayout) || t.Format(TimeLayout)[:local] != s[:local] {
		return time.Time{}, malformed(depthTime, "the time is not like "+TimeLayout)
	}
	return t, nil
}

// parseNumbers reads status and bytes, and returns what is behind them.
func (e *Entry) parseNumbers(s string) (rest string, err error) {
	s, found := strings.CutPrefix(s, " ")
	status, s, more := strings.Cut(s, " ")
	if !found || !more || len(status) != len("200") {
		return "", malformed(6, "no status of three digits behind the request")
	}
	n, err := strconv.ParseUint(status, 10, 10)
	if err != nil {
		return "", malformed(6, "no status of three digits behind the request")
	}
	e.Status = int(n)
	size, rest, more := strings.Cut(s, " ")
	if more && rest == "" {
		return "", malformed(7, "a blank at the end")
	}
	if size == "-" {
		e.Bytes = -1
		return rest, nil
	}
	bytes, err := strconv.ParseUint(size, 10, 63)
	if err != nil {
		return "", malformed(7, "no number of bytes behind the status")
	}
	e.Bytes = int64(bytes)
	return rest, nil
}

// parseAgent reads what the combined format has beyond the common one.
func (e *Entry) parseAgent(s string) error {
	if s == "" {
		return nil
	}
	s, found := strings.CutPrefix(s, `"`)
	if !found {
		return malformed(8, "no referer in quotes behind the bytes")
	}
	e.Combined = true
	e.Referer, s, _ = cutQuoted(s)
	if s == "" || s == " " {
		return nil
	}
	if s, found = strings.CutPrefix(s, ` "`); !found {
		return malformed(9, "no user agent in quotes behind the referer")
	}
	e.UserAgent, s, _ = cutQuoted(s)
	if s != "" && !strings.HasPrefix(s, " ") {
		return malformed(10, "no blank behind the user agent")
	}
	return nil
}

// cutQuoted returns what stands before the closing quote, and what stands behind
// it. A backslash takes the meaning from the byte behind it. Without a closing
// quote, all is before, but for a backslash that has lost its byte.
func cutQuoted(s string) (quoted, rest string, found bool) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			return s[:i], s[i+1:], true
		case '\\':
			if i++; i == len(s) {
				return s[:i-1], "", false
			}
		}
	}
	return s, "", false
}

// String writes the entry as a line. Parse reads it back if it came from Parse.
func (e Entry) String() string {
	line := fmt.Sprintf(`%s %s %s [%s] "%s" %03d %s`,
		e.Host, e.Ident, e.User, e.Time.Format(TimeLayout), e.Request, e.Status, e.size())
	if e.Combined {
		line += fmt.Sprintf(` "%s" "%s"`, e.Referer, e.UserAgent)
	}
	return line
}
