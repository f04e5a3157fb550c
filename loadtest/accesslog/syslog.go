package accesslog

import (
	"errors"
	"fmt"
	"slices"
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
		return time.Time{}, malformed("the time is not like " + syslogLayout)
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

// date gives their years to those of the events that have none. The events are those of one
// input, in the order of its lines. The last one is in the year, or, where that is 0, in the
// latest one in which it is not after the input was written, give or take a day.
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
