package main

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// dialect matches sentences without a named subject. The standard library's documentation
// names the subject: the limiter, a replica, the caller.
var dialect = regexp.MustCompile(`(?i)\b(` + strings.Join([]string{
	`nobody`, `somebody`, `everybody`, `anybody`, `who`, `whom`, `whoever`,
	`(?:is|are|was|were|be|been) told`, `what st(?:ands|ood)`, `those that`, `for want of`,
	`ha(?:s|ve) (?:it|them) done`,
}, "|") + `)\b`)

// retired matches terms that the glossary has replaced with the standard one.
var retired = regexp.MustCompile(`(?i)\b(` + strings.Join([]string{
	`mend(?:er|ers|ing|ed|s)?`,       // repair
	`ledgers?`, `debts?`, `owe[sd]?`, // hints
	`forg(?:ive|ives|iven|ave)`, // drop
	`errands?`, `lanes?`,        // operation, pooled connection
	`crowd(?:s|ed|ing)?`,                   // contention
	`tak(?:e|es|en|ing) back`, `took back`, // roll back
	`take-?backs?`,                       // rollback
	`overtak(?:e|es|en|ing)`, `overtook`, // coalesce
	`patience`, `patient`, // maxWait
	`stands`, `stood`, `vouch(?:es|ed)?`, `wary`, `goes by it`, // cached denial, mustProbe
	`flush(?:es|ed)?`,    // batch
	`astray`, `discreet`, // orphaned, redacted
	`recollect(?:s|ed|ion)?`, `rememberer`, // data-loss detection
	`mercy`, `tide`, // grace period
	`tripped`, // OnRoundTrip
}, "|") + `)\b`)

// harmless are standard terms that hold a word of the lists.
var harmless = regexp.MustCompile(`(?i)flush_all|\bout\.flush\b|\[?\w*\.Flush(?:er)?\b|\bstands? for\b`)

// wordIn returns what of a line is in the list, or "".
func wordIn(list *regexp.Regexp, text string) string {
	return strings.ToLower(list.FindString(harmless.ReplaceAllString(text, "")))
}

// share counts lines that hold a word of a list.
type share struct{ found, of int }

func (s *share) add(lines []line, list *regexp.Regexp) {
	for _, line := range lines {
		s.of++
		if wordIn(list, line.text) != "" {
			s.found++
		}
	}
}

func (s share) String() string {
	return fmt.Sprintf("%.1f", 100*float64(s.found)/float64(max(s.of, 1)))
}

// shares counts the lines of each package, tests included, and of each document.
func shares(tree []source, documents []document, list *regexp.Regexp) map[string]share {
	all := map[string]share{}
	add := func(place string, lines []line) {
		s := all[place]
		s.add(lines, list)
		all[place] = s
	}
	for _, file := range tree {
		add(file.folder, file.commentLines())
	}
	for _, d := range documents {
		add(d.path, d.prose())
	}
	return all
}

// shareFigure compares the comments of the product, of its tests, and the documents.
func shareFigure(f figure, tree []source, documents []document, list *regexp.Regexp) figure {
	var comments, tests, prose share
	for _, file := range tree {
		if file.test {
			tests.add(file.commentLines(), list)
		} else {
			comments.add(file.commentLines(), list)
		}
	}
	for _, d := range documents {
		prose.add(d.prose(), list)
	}
	f.value = fmt.Sprintf("%s (tests %s, documents %s)", comments, tests, prose)
	all := shares(tree, documents, list)
	for _, place := range slices.Sorted(maps.Keys(all)) {
		if s := all[place]; s.found > 0 {
			f.details = append(f.details, fmt.Sprintf("%4d of %4d lines %s", s.found, s.of, place))
		}
	}
	return f
}

func dialectFigure(tree []source, documents []document) figure {
	return shareFigure(figure{name: "of 100 comment lines, with nobody, who, is told, what stands, …", aim: "below 0.3"}, tree, documents, dialect)
}

func retiredFigure(tree []source, documents []document) figure {
	return shareFigure(figure{name: "of 100 comment lines, with a term that the glossary replaced", aim: "0"}, tree, documents, retired)
}

// findWords writes each line of a package or document that holds a word of either list.
func findWords(out io.Writer, root, place string) error {
	tree, err := readTree(root)
	if err != nil {
		return err
	}
	documents, err := readDocuments(root)
	if err != nil {
		return err
	}
	write := func(path string, lines []line) {
		for _, line := range lines {
			for _, list := range []*regexp.Regexp{dialect, retired} {
				if word := wordIn(list, line.text); word != "" {
					fmt.Fprintf(out, "%s:%d: %s: %s\n", path, line.number, word, line.text)
				}
			}
		}
	}
	for _, file := range tree {
		if file.folder == place || file.path == place {
			write(file.path, file.commentLines())
		}
	}
	for _, d := range documents {
		if d.path == place {
			write(d.path, d.prose())
		}
	}
	return nil
}
