// Package fixedwindow has windows that follow one another: multiples of a length since the Unix
// epoch, in UTC, or the hours, days, weeks and months of a calendar. All hits leave together, at
// the turn of the window: around a turn twice the limit may pass in less than the length.
package events

import "time"

// Around returns the window that holds the second: its first and its last one. Windows of that
// length begin at its multiples. With a zone the length names the unit of its calendar: see Unit.
func FixedWindowAround(second, length int64, zone *time.Location) (first, last int64) {
	if zone != nil {
		return unitAround(second, length, zone)
	}
	first = second - into(second, length)
	return first, first + length - 1
}

// into returns how many seconds of its window are before the second.
func into(second, length int64) int64 { return ((second % length) + length) % length }

// Fault returns why there are no windows of that length at that precision: one step of it would be in
// two windows.
func FixedWindowFault(length, precision int64, zone *time.Location) string {
	switch {
	case zone != nil && !turnsWith(zone, precision):
		return "the calendar turns within a step of the precision in that zone: take a finer precision"
	case length%precision != 0:
		return "a fixed window is a multiple of the precision: take a finer precision or another window"
	}
	return ""
}
