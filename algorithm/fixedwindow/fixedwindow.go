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
