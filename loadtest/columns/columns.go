// Package columns writes what loadtest's reports have in common: tables of text, and figures
// in groups of three digits.
package columns

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Write writes a table. The first columns, so many of them, are on the left, the others on
// the right; a row may be shorter than others.
func Write(to *strings.Builder, left int, rows [][]string) {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			blank := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < left {
				line += cell + blank
			} else {
				line += "  " + blank + cell
			}
		}
		to.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// Grouped writes a number with a comma between its thousands.
func Grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Rounded writes a figure as a whole number, grouped.
func Rounded(f float64) string { return Grouped(int64(math.RoundToEven(f))) }

// Digits writes a figure with its significant digits: two decimals below 10, one below 100.
func Digits(f float64) string {
	switch {
	case f < 10:
		return strconv.FormatFloat(f, 'f', 2, 64)
	case f < 100:
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return Rounded(f)
}
