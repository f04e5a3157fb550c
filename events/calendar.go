package events

import (
	"math"
	"time"
)

// The units of a calendar, by their usual length in seconds.
const (
	HourSeconds  = 3600
	DaySeconds   = 24 * HourSeconds
	WeekSeconds  = 7 * DaySeconds // from Monday on, as ISO 8601 has it
	MonthSeconds = 30 * DaySeconds
)

// longestShift is by how much a clock may be put back: a day is that much longer then. No zone
// has seen more since 2000.
const longestShift = 3 * HourSeconds

// CalendarUnit returns the name of the calendar unit of that length in seconds, or "".
func CalendarUnit(length int64) string {
	return map[int64]string{HourSeconds: "hour", DaySeconds: "day", WeekSeconds: "week", MonthSeconds: "month"}[length]
}

// LongestWindow returns the most seconds that a window can have.
func LongestWindow(length int64, zone *time.Location) int64 {
	switch {
	case zone == nil || length == HourSeconds:
		return length
	case length == MonthSeconds:
		return 31*DaySeconds + longestShift
	}
	return length + longestShift
}

// unitAround returns the unit of the zone's calendar that holds the second. A day begins in the
// first second in which the clock of the zone shows that day or a later one: a day that is skipped
// has no second, and a clock that goes back over midnight begins no day again.
func unitAround(second, length int64, zone *time.Location) (first, last int64) {
	if length == HourSeconds {
		return hourAround(second, zone)
	}
	t := time.Unix(second, 0).In(zone)
	year, month, day := t.Date()
	months, days := 0, 0
	switch length {
	case MonthSeconds:
		day, months = 1, 1
	case WeekSeconds:
		day, days = day-(int(t.Weekday())+6)%7, 7
	default:
		days = 1
	}
	first = turn(year, month, day, zone)
	for {
		month, day = month+time.Month(months), day+days
		next := turn(year, month, day, zone)
		if second < next {
			return first, next - 1
		}
		first = next
	}
}

// turn returns the first second in which the clock of the zone shows that day or a later one. The
// day may be beyond the month.
func turn(year int, month time.Month, day int, zone *time.Location) int64 {
	midnight := time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix()
	at := midnight - DaySeconds // no clock is so far ahead
	for {
		t := time.Unix(at, 0).In(zone)
		_, offset := t.Zone()
		at = max(at, midnight-int64(offset))
		_, end := bounds(t)
		if at < end {
			return at
		}
		at = end
	}
}

// hourAround returns the hour of the zone's clock that holds the second. Where the clock is put
// forward or back by whole hours, hours follow one another as ever; by a part of an hour, an hour
// ends and another one begins.
func hourAround(second int64, zone *time.Location) (first, last int64) {
	t := time.Unix(second, 0).In(zone)
	_, offset := t.Zone()
	first = second - into(second+int64(offset), HourSeconds)
	last = first + HourSeconds - 1
	inStep := func(t time.Time) bool {
		_, other := t.Zone()
		return (other-offset)%HourSeconds == 0
	}
	for start, _ := bounds(t); start > first; {
		before := time.Unix(start-1, 0).In(zone)
		if !inStep(before) {
			first = start
			break
		}
		start, _ = bounds(before)
	}
	for _, end := bounds(t); end <= last; {
		after := time.Unix(end, 0).In(zone)
		if !inStep(after) {
			last = end - 1
			break
		}
		_, end = bounds(after)
	}
	return first, last
}

// turnsWith reports whether all windows of the zone's calendar begin at multiples of the precision,
// from the year 2000 to 2100.
func turnsWith(zone *time.Location, precision int64) bool {
	const from, to = 30 * 365 * DaySeconds, 130 * 365 * DaySeconds
	before := 0
	for at := int64(from); at < to; {
		t := time.Unix(at, 0).In(zone)
		_, offset := t.Zone()
		if int64(offset)%precision != 0 || at > from && offset != before && at%precision != 0 {
			return false
		}
		before = offset
		_, at = bounds(t)
	}
	return true
}

// bounds returns from which second to before which one the offset of the zone is that of the moment.
// It may be so for longer.
func bounds(t time.Time) (start, end int64) {
	start, end = math.MinInt64, math.MaxInt64
	from, to := t.ZoneBounds()
	if !from.IsZero() {
		start = from.Unix()
	}
	if !to.IsZero() {
		end = to.Unix()
	}
	if second := t.Unix(); end <= second { // package time takes the years to come for 365 days long
		end = second - into(second, DaySeconds) + DaySeconds
	}
	return start, end
}
