// Package fixedwindow has windows that follow one another: each begins at a multiple of its
// length since the Unix epoch, in UTC. All hits leave together, at the turn of the window: at
// each turn twice the limit may pass within less than the length. Where that does no harm, it
// takes fewer reads than a sliding window.
package fixedwindow

// Around returns the window of that length that holds the second: its first and its last one.
func Around(second, length int64) (first, last int64) {
	first = second - ((second%length)+length)%length
	return first, first + length - 1
}

// maxSteps bounds the steps of one length that a window is counted in, and so what a hit reads.
const maxSteps = 250

// Fault returns why there are no windows of that length: they are counted in the longest steps,
// of a second, a minute, an hour or a day, that divide it, and would take too many. Steps shorter
// than the precision are not counted.
func Fault(length, precision int64) string {
	if length%precision != 0 {
		return "a fixed window is a multiple of the precision: take a finer precision or another window"
	}
	for _, step := range []int64{86400, 3600, 60, 1} {
		if step >= precision && length%step == 0 && length/step <= maxSteps {
			return ""
		}
	}
	return "a fixed window of more than 250 seconds is in whole minutes, of more than 250 minutes in whole hours, of more than 250 hours in whole days"
}
