package accesslog

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// TimeLayout is how a log in the common or the combined format writes times.
const TimeLayout = "02/Jan/2006:15:04:05 -0700"

// syslogTime is how syslog writes times by tradition (RFC 3164): without a year, in the
// local time of its host.
const syslogTime = "Jan _2 15:04:05"

// Layout is how a log writes times, as package time writes it. The zero Layout takes what most
// do: RFC 3339, the common log format's, syslog's, and seconds since 1970, also with a fraction,
// and milliseconds, microseconds and nanoseconds, told apart by their size.
type Layout string

// ParseLayout reads a layout: auto for the zero one, or one as package time writes it. That
// must hold all from the year to the second; without a zone it is UTC, and a zone is a number,
// for its letters may mean anything.
func ParseLayout(text string) (Layout, error) {
	if text == "auto" {
		return "", nil
	}
	example := time.Date(2017, time.November, 23, 18, 44, 59, 0, time.UTC)
	again, err := time.Parse(text, example.Format(text))
	if err != nil || !again.Equal(example) || strings.Contains(text, "MST") {
		return "", errors.New("accesslog: a layout is auto, or Go's with all from the year to the second," +
			" and a zone in digits or none, as in 2006-01-02 15:04:05")
	}
	return Layout(text), nil
}

func (l Layout) String() string { return cmp.Or(string(l), "auto") }

// Parse reads a time; one of syslog is in the year 0. Errors wrap ErrMalformed.
func (l Layout) Parse(text string) (time.Time, error) {
	if l == "" {
		return parseAny(text)
	}
	t, err := parseAs(text, string(l), string(l))
	// ParseInLocation by itself also takes fractions of a second, an hour of one digit and a
	// lower-case month.
	if local := len(TimeLayout) - len(" -0700"); l == TimeLayout && err == nil &&
		(len(text) != len(TimeLayout) || t.Format(TimeLayout)[:local] != text[:local]) {
		return time.Time{}, malformed("the time is not like " + TimeLayout)
	}
	return t, err
}

// zoneWithoutColon is how journalctl writes times.
const zoneWithoutColon = "2006-01-02T15:04:05-0700"

// parseAs reads a time in one of the layouts.
func parseAs(text, name string, layouts ...string) (time.Time, error) {
	for _, layout := range layouts {
		if t, err := time.ParseInLocation(layout, text, time.UTC); err == nil {
			return t, nil
		}
	}
	return time.Time{}, malformed("the time is not like " + name)
}

// parseAny goes by the form of the text. Seconds and smaller units differ by the digits before
// the point, as the times from 2001 to 2286 have them; fewer are seconds, too. A number of another
// length may be anything, 20150517100503 too; and one of eight digits is rather a day than one of
// the first years behind 1970.
func parseAny(text string) (time.Time, error) {
	if strings.ContainsRune(text, '/') {
		return Layout(TimeLayout).Parse(text)
	}
	if strings.Trim(text, "0123456789.") != "" {
		return parseAs(text, "RFC 3339, "+TimeLayout+", "+syslogTime+" or a number of seconds", time.RFC3339Nano, zoneWithoutColon, syslogTime)
	}
	whole, _, _ := strings.Cut(text, ".")
	switch digits := len(whole); {
	case digits <= 10 && digits != len("20150517"):
		return parseUnix(text, 9)
	case digits == 13 || digits == 16 || digits == 19:
		return parseUnix(text, 19-digits)
	}
	return time.Time{}, malformed("the time is a number of no known unit")
}

// lastSecond is that of the year 9999.
const lastSecond = 253402300799

// parseUnix reads a decimal number of units since 1970, exactly: a fraction is cut off
// behind the nanosecond, and never rounded up into the next second. So many decimals of the unit
// are nanoseconds.
func parseUnix(text string, decimals int) (time.Time, error) {
	whole, fraction, point := strings.Cut(text, ".")
	if whole == "" || point && fraction == "" || strings.Trim(whole+fraction, "0123456789") != "" {
		return time.Time{}, malformed("the time is not a number of seconds, or of their parts, since 1970")
	}
	nanos := strings.Repeat("0", 9) + whole + (fraction + strings.Repeat("0", 9))[:decimals]
	place := len(nanos) - 9
	seconds, err := strconv.ParseInt(nanos[:place], 10, 64)
	if err != nil || seconds > lastSecond {
		return time.Time{}, malformed("the time is behind the year 9999")
	}
	nano, err := strconv.ParseInt(nanos[place:], 10, 64)
	return time.Unix(seconds, nano).UTC(), err
}

// ErrYear is returned for a log whose times have no year, and do not fit the years that
// they would be of.
var ErrYear = errors.New("accesslog: the log's times have no year")

// turnBack and turnAhead are the steps between two lines that a turn of the year explains:
// a step back of half a year, and a step ahead of eleven months, which is a late line of
// December.
const (
	turnBack  = 183 * 24 * time.Hour
	turnAhead = 335 * 24 * time.Hour
)

// date gives their years to those of the events that have none, and are in the year 0, which has
// a 29 February. The events are those of one input, in the order of its lines. The last one is
// in the year, or, where that is 0, in the latest one in which it is not after the input was
// written, give or take a day.
func date(list []Event, year int, written time.Time, zone *time.Location) error {
	var next time.Time // the time without a year behind this one
	for i := range slices.Backward(list) {
		at := list[i].Time()
		if at.Year() != 0 {
			continue
		}
		switch {
		case !next.IsZero() && next.Sub(at) < -turnBack:
			year--
		case !next.IsZero() && next.Sub(at) > turnAhead:
			year++
		case next.IsZero() && year == 0:
			year = written.In(zone).Year() + 1
			for latest := written.Add(24 * time.Hour); inYear(at, year, zone).After(latest); {
				year--
			}
		}
		dated := inYear(at, year, zone)
		if dated.Day() != at.Day() && at.Month() == time.February {
			return fmt.Errorf("%w, and the 29 February in it is none of %d", ErrYear, year)
		}
		list[i].Micros = dated.UnixMicro()
		next = at
	}
	return nil
}

// inYear returns the time on the clocks of the zone in the year.
func inYear(at time.Time, year int, zone *time.Location) time.Time {
	return time.Date(year, at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), zone)
}
