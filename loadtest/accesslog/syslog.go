package accesslog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// syslogLayout is how syslog writes times by tradition (RFC 3164): without a year, in the
// local time of its host.
const syslogLayout = "Jan _2 15:04:05"

// ErrYear is returned for a log whose times have no year, and do not fit the years that
// they would be of.
var ErrYear = errors.New("accesslog: the log's times have no year")

// undated is the location of times without a year. They are in the year 0, which has a
// 29 February.
var undated = time.FixedZone("undated", 0)

func parseSyslog(text string) (time.Time, error) {
	t, err := time.ParseInLocation(syslogLayout, text, undated)
	if err != nil {
		return time.Time{}, malformed(depthTime, "the time is not like "+syslogLayout)
	}
	return t, nil
}

// turnBack and turnAhead are the steps between two lines that a turn of the year explains:
// a step back of half a year, and a step ahead of eleven months, which is a late line of
// December.
const (
	turnBack  = 183 * 24 * time.Hour
	turnAhead = 335 * 24 * time.Hour
)

// years assigns years to the undated times of one input, in the order of its lines. Only
// the last line's year is known, so each time is kept with the turns of the year before it.
type years struct {
	last  time.Time // undated; zero: there was none
	turn  int       // turns of the year before the last time
	turns []turn
}

// turn is where the number of turns changes.
type turn struct {
	event int // the first index of Log.Events with
	turns int // so many turns of the year before it
}

// add takes the next undated time, that of the event with this index.
func (y *years) add(at time.Time, event int) {
	before := y.turn
	if !y.last.IsZero() {
		switch step := at.Sub(y.last); {
		case step < -turnBack:
			y.turn++
		case step > turnAhead:
			y.turn--
		}
	}
	if y.last.IsZero() || y.turn != before {
		y.turns = append(y.turns, turn{event, y.turn})
	}
	y.last = at
}

// date gives their years to the events that add was called for. The last one is in the year,
// or, where that is 0, in the latest one in which it is not after the input was written, give
// or take a day.
func (y *years) date(list []Event, year int, written time.Time, zone *time.Location) error {
	if y.last.IsZero() {
		return nil
	}
	if year == 0 {
		year = written.In(zone).Year() + 1
		for latest := written.Add(24 * time.Hour); inYear(y.last, year, zone).After(latest); {
			year--
		}
	}
	for i, t := range y.turns {
		end := len(list)
		if i+1 < len(y.turns) {
			end = y.turns[i+1].event
		}
		if err := dateAll(list[t.event:end], year-y.turn+t.turns, zone); err != nil {
			return err
		}
	}
	return nil
}

// dateAll gives the year to those of the events that have none.
func dateAll(list []Event, year int, zone *time.Location) error {
	for i := range list {
		at := list[i].Time()
		if at.Year() != 0 {
			continue
		}
		dated := inYear(at, year, zone)
		if dated.Day() != at.Day() && at.Month() == time.February {
			return fmt.Errorf("%w, and the 29 February in it is none of %d", ErrYear, year)
		}
		list[i].Micros = dated.UnixMicro()
	}
	return nil
}

// inYear returns the time on the clocks of the zone in the year.
func inYear(at time.Time, year int, zone *time.Location) time.Time {
	return time.Date(year, at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), zone)
}

// sshdLine is a line of OpenSSH's server that says that a password was wrong: behind the
// head of a traditional syslog, of one with ISO times, or of RFC 5424. The name of the user is
// what the client sent, so it may hold anything; the last address is the client's.
const sshdLine = `^(?:<\d+>1? ?)?(?P<time>[A-Z]\S* +\d+ \S+|\d\S+) \S+ ` +
	`(?:sshd|sshd-session|sshd-auth)(?:\[\d+\]:| \S+ \S+ (?:-|\[.*?\])) ` + "(?:\ufeff)?" +
	`(?:message repeated (?P<n>\d+) times: \[ )?` +
	`Failed (?P<method>password|keyboard-interactive\S*) for (?:(?:invalid|illegal) user )?` +
	`(?P<user>.*) from (?P<host>\S+) port (?P<port>\d+)(?: ssh\d)?\]?$`

// NewSSHD returns the format of OpenSSH's server in syslog, whose records are its failed
// logins by password and keyboard-interactive; all other lines are filtered. Its fields are
// host, user, method, port, and n: how often a repeated message came, empty for others.
func NewSSHD(fields ...string) (Format, error) {
	known := []string{"host", "user", "method", "port", RepeatedField}
	for _, name := range fields {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("accesslog: the sshd format has no field %q, but %s", name, strings.Join(known, ", "))
		}
	}
	lines, err := NewRegexp(sshdLine, Layout{}, fields...)
	return &sshd{lines}, err
}

// RepeatedField is the field of the sshd format that says how often a line's message came.
const RepeatedField = "n"

type sshd struct{ lines Format }

func (f *sshd) Parse(line string) (Record, error) {
	record, err := f.lines.Parse(line)
	if errors.Is(err, ErrFiltered) {
		return Record{}, filtered("it is no failed login")
	}
	return record, err
}

func (f *sshd) String() string {
	return "failed logins of OpenSSH, as Failed password for root from 192.0.2.1 port 4711 ssh2, in a syslog"
}
