package events

import "time"

// FixedWindowAround returns the first and the last second of the fixed window that holds the
// second. Fixed windows follow one another: they begin at multiples of the length since the Unix
// epoch, in UTC. If zone is not nil, the length names a unit of its calendar: see CalendarUnit. All
// hits of a window leave it together, so up to twice the limit may pass around its end.
func FixedWindowAround(second, length int64, zone *time.Location) (first, last int64) {
	if zone != nil {
		return unitAround(second, length, zone)
	}
	first = second - into(second, length)
	return first, first + length - 1
}

// into returns how many seconds of its window are before the second.
func into(second, length int64) int64 { return ((second % length) + length) % length }

// FixedWindowFault returns why fixed windows of that length cannot be counted at that precision, or
// "": a step of the precision must not belong to two windows.
func FixedWindowFault(length, precision int64, zone *time.Location) string {
	switch {
	case zone != nil && !turnsWith(zone, precision):
		return "the calendar turns within a step of the precision in that zone: take a finer precision"
	case length%precision != 0:
		return "a fixed window is a multiple of the precision: take a finer precision or another window"
	}
	return ""
}
