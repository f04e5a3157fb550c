package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(\w+ \*testing\.[TF]\)`)
	testName = regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
)

// testsOfTheTree returns the names of all tests.
func testsOfTheTree(t *testing.T) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	err := filepath.WalkDir("..", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		for _, match := range testFunc.FindAllSubmatch(text, -1) {
			tests[string(match[1])] = true
		}
		return err
	})
	require.NoError(t, err)
	return tests
}

// threat is a row of the page's tables.
type threat struct {
	what, stops string
	tests       []string
	odd         []string // what stands beside the names of tests
}

// threatsOf returns the rows of the tables with the heads threat, what stops it, test.
func threatsOf(page string) (threats []threat) {
	inside := false
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		switch {
		case !strings.HasPrefix(line, "|"):
			inside = false
		case len(cells) == 3 && strings.TrimSpace(cells[0]) == "threat":
			inside = true
		case inside && !strings.HasPrefix(line, "| ---"):
			row := threat{what: strings.TrimSpace(cells[0])}
			if len(cells) == 3 {
				row.stops = strings.TrimSpace(cells[1])
				for _, match := range testName.FindAllStringSubmatch(cells[2], -1) {
					row.tests = append(row.tests, match[1])
				}
				row.odd = strings.Fields(testName.ReplaceAllString(cells[2], ""))
			}
			threats = append(threats, row)
		}
	}
	return threats
}

// faultsOf returns what is wrong with the rows.
func faultsOf(threats []threat, tests map[string]bool) (faults []string) {
	for _, row := range threats {
		switch {
		case row.what == "" || row.stops == "":
			faults = append(faults, "not a row of three: "+row.what)
		case len(row.tests) == 0 || len(row.odd) > 0:
			faults = append(faults, "no test, or more than names: "+row.what)
		}
		for _, name := range row.tests {
			if !tests[name] {
				faults = append(faults, "there is no "+name+": "+row.what)
			}
		}
	}
	return faults
}

// Each threat of security.md names what stops it, and tests that are there.
func TestEachThreatHasItsTest(t *testing.T) {
	page, err := os.ReadFile("security.md")
	require.NoError(t, err)
	threats := threatsOf(string(page))
	assert.Greater(t, len(threats), 35)
	assert.Empty(t, faultsOf(threats, testsOfTheTree(t)))
}

func TestThreatsWithoutTestsAreFound(t *testing.T) {
	const page = "| threat | what stops it | test |\n| --- | --- | --- |\n" +
		"| good | a | `TestGood` `FuzzGood` |\n| none | a | |\n| gone | a | `TestGone` |\n| words | a | TestGood |\n| short | `TestGood` |\n| open | | `TestGood` |\n\n| other | table | here |\n"
	tests := map[string]bool{"TestGood": true, "FuzzGood": true}
	faults := faultsOf(threatsOf(page), tests)
	for _, of := range []string{"none", "gone", "words", "short", "open"} {
		assert.True(t, slices.ContainsFunc(faults, func(fault string) bool { return strings.HasSuffix(fault, of) }), "%s: %q", of, faults)
	}
	assert.Len(t, faults, 5)
}
