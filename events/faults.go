package events

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one fault of a rules file. It wraps ErrInvalid. It is logged, so nothing that
// may be the value of a feature is in it: what is hidden is in that line of the file.
type Fault struct {
	Line   int    // from 1; 0 where the file as a whole is at fault
	Column int    // from 1, in characters; 0 where the line as a whole is at fault
	Path   string // such as events.url_shorten.limits[0].rate or ...overrides[…]; empty for the file as a whole
	Reason string // what is wrong, and how to correct it
}

// Error returns the fault in one line: line, column, path and reason.
func (f Fault) Error() string {
	var b strings.Builder
	if f.Line > 0 {
		fmt.Fprintf(&b, "line %d", f.Line)
		if f.Column > 0 {
			fmt.Fprintf(&b, ", column %d", f.Column)
		}
		b.WriteString(": ")
	}
	if f.Path != "" {
		b.WriteString(f.Path + ": ")
	}
	return b.String() + f.Reason
}

func (f Fault) Unwrap() error { return ErrInvalid }

// Faults are faults of a rules file, in the order of their lines. They wrap
// ErrInvalid.
type Faults []Fault

// Error returns one line for each fault.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

func (f Faults) Unwrap() error { return ErrInvalid }

// Sort puts the faults in the order of their lines and columns.
func (f Faults) Sort() {
	slices.SortStableFunc(f, func(a, b Fault) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
}

// Nearest returns the word that s is likely to be a misspelling of, up to two letters away; empty:
// there is none.
func Nearest(s string, words []string) string {
	var best string
	least := 3 // more than two slips of the finger are another word
	for _, word := range words {
		// A short word is near to anything.
		if d := distance(s, word); d < min(least, len(word)) {
			best, least = word, d
		}
	}
	return best
}

// maxListed is how many names an error lists.
const maxListed = 8

// Suggest ends a sentence about an unknown name: with the nearest of the known ones, or a list.
func Suggest(name string, known []string) string {
	nearest := Nearest(name, known)
	switch {
	case nearest != "":
		return fmt.Sprintf(": did you mean %q?", nearest)
	case len(known) == 0:
		return ""
	case len(known) > maxListed:
		return fmt.Sprintf(": there are %s and %d more", strings.Join(known[:maxListed], ", "), len(known)-maxListed)
	}
	return ": there is " + strings.Join(known, ", ")
}

// distance is the edit distance of Damerau and Levenshtein, in its restricted
// form: letters left out, put in, replaced, or swapped with their neighbour. For
// words whose lengths differ much it returns that difference.
func distance(a, b string) int {
	if d := max(len(a)-len(b), len(b)-len(a)); d > 2 {
		return d
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replaced := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, replaced)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
