package accesslog

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// TimeLayout is how a log in the common or the combined format writes times.
const TimeLayout = "02/Jan/2006:15:04:05 -0700"

// Layout is how a log writes times. The zero Layout takes what most do: RFC 3339, the
// common log format's, syslog's, and seconds since 1970, also with a fraction, and milliseconds,
// microseconds and nanoseconds, told apart by their size.
type Layout struct {
	name string
}

// Names of layouts that are not written as an example.
const (
	layoutAuto    = "auto"
	layoutRFC3339 = "rfc3339"
	layoutCommon  = "common"
	layoutUnix    = "unix"
	layoutMillis  = "unix-ms"
	layoutSyslog  = "syslog"
)

// ParseLayout reads the name of a layout: auto (or nothing), rfc3339, common, unix,
// unix-ms, syslog; or a layout as package time writes it. That must hold all from the year to the
// second; without a zone it is UTC, and a zone is a number, for its letters may mean
// anything.
func ParseLayout(text string) (Layout, error) {
	switch text {
	case "", layoutAuto:
		return Layout{}, nil
	case layoutRFC3339, layoutCommon, layoutUnix, layoutMillis, layoutSyslog:
		return Layout{text}, nil
	}
	example := time.Date(2017, time.November, 23, 18, 44, 59, 0, time.UTC)
	again, err := time.Parse(text, example.Format(text))
	if err != nil || !again.Equal(example) || strings.Contains(text, "MST") {
		return Layout{}, errors.New("accesslog: a layout is auto, rfc3339, common, unix, unix-ms, syslog," +
			" or Go's with all from the year to the second, and a zone in digits or none, as in 2006-01-02 15:04:05")
	}
	return Layout{text}, nil
}

func (l Layout) String() string {
	if l.name == "" {
		return layoutAuto
	}
	return l.name
}

// Parse reads a time. Errors wrap ErrMalformed.
func (l Layout) Parse(text string) (time.Time, error) {
	switch l.name {
	case "":
		return parseAnyTime(text)
	case layoutCommon:
		return parseTime(text)
	case layoutUnix:
		return parseUnix(text, time.Second)
	case layoutMillis:
		return parseUnix(text, time.Millisecond)
	case layoutRFC3339:
		return parseRFC3339(text, "RFC 3339")
	case layoutSyslog:
		return parseSyslog(text)
	}
	return parseAs(l.name, text, l.name)
}

func parseAs(layout, text, name string) (time.Time, error) {
	t, err := time.ParseInLocation(layout, text, time.UTC)
	if err != nil {
		return time.Time{}, malformed("the time is not like " + name)
	}
	return t, nil
}

// parseTime takes exactly what TimeLayout writes: time.Parse by itself would
// also take fractions of a second, an hour of one digit and a lower-case month.
func parseTime(s string) (time.Time, error) {
	t, err := time.ParseInLocation(TimeLayout, s, time.UTC)
	if local := len(TimeLayout) - len(" -0700"); err != nil || len(s) != len(TimeLayout) || t.Format(TimeLayout)[:local] != s[:local] {
		return time.Time{}, malformed("the time is not like " + TimeLayout)
	}
	return t, nil
}

// parseAnyTime goes by the form of the text.
func parseAnyTime(text string) (time.Time, error) {
	switch {
	case strings.Trim(text, "0123456789.") == "":
		unit, err := unitOf(text)
		if err != nil {
			return time.Time{}, err
		}
		return parseUnix(text, unit)
	case strings.ContainsRune(text, '/'):
		return parseTime(text)
	}
	t, err := parseRFC3339(text, "RFC 3339, "+TimeLayout+", "+syslogLayout+" or a number of seconds")
	if err != nil {
		if short, err := parseSyslog(text); err == nil {
			return short, nil
		}
	}
	return t, err
}

// parseRFC3339 takes a zone without a colon, too, as journalctl writes it.
func parseRFC3339(text, name string) (time.Time, error) {
	t, err := parseAs(time.RFC3339Nano, text, name)
	if err != nil {
		if short, err := time.Parse("2006-01-02T15:04:05-0700", text); err == nil {
			return short, nil
		}
	}
	return t, err
}

// unitOf tells seconds from smaller units by the digits before the point, as the times
// from 2001 to 2286 have them; fewer are seconds, too. A number of another length may be
// anything, 20150517100503 too; and one of eight digits is rather a day than one of the
// first years behind 1970.
func unitOf(number string) (time.Duration, error) {
	whole, _, _ := strings.Cut(number, ".")
	switch digits := len(whole); {
	case digits <= 10 && digits != len("20150517"):
		return time.Second, nil
	case digits == 13:
		return time.Millisecond, nil
	case digits == 16:
		return time.Microsecond, nil
	case digits == 19:
		return time.Nanosecond, nil
	}
	return 0, malformed("the time is a number of no known unit")
}

// parseUnix reads a decimal number of units since 1970, exactly: a fraction is cut off
// behind the nanosecond, and never rounded up into the next second.
func parseUnix(text string, unit time.Duration) (time.Time, error) {
	whole, fraction, point := strings.Cut(text, ".")
	units, err := strconv.ParseUint(whole, 10, 63)
	if err != nil || point && (fraction == "" || strings.Trim(fraction, "0123456789") != "") {
		return time.Time{}, malformed("the time is not a number of seconds, or of their parts, since 1970")
	}
	perSecond := int64(time.Second / unit)
	seconds, nanos := int64(units)/perSecond, int64(units)%perSecond*int64(unit)
	for place := int64(unit) / 10; place > 0 && fraction != ""; place /= 10 {
		nanos += int64(fraction[0]-'0') * place
		fraction = fraction[1:]
	}
	if seconds > maxSecond {
		return time.Time{}, malformed("the time is behind the year 9999")
	}
	return time.Unix(seconds, nanos).UTC(), nil
}

// maxSecond is the last one of the year 9999.
const maxSecond = 253402300799
