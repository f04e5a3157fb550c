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

// threat is an item of the page's lists: what threatens, the answer, and the tests behind it.
type threat struct {
	what, stops string
	tests       []string
}

var (
	// threatItem matches an item with its following lines.
	threatItem = regexp.MustCompile(`(?m)^- \*\*([^*]+)\*\*((?:.*\n?)(?:  .*\n?)*)`)
	// testsAtTheEnd match the names behind the answer.
	testsAtTheEnd = regexp.MustCompile("(?:\\s+`(?:Test|Fuzz)\\w+`)+\\s*$")
)

// threatsOf returns the items of the section Threats.
func threatsOf(page string) (threats []threat) {
	_, section, _ := strings.Cut(page, "\n## Threats\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, match := range threatItem.FindAllStringSubmatch(section, -1) {
		names := testsAtTheEnd.FindString(match[2])
		item := threat{what: match[1], stops: strings.TrimSpace(strings.TrimSuffix(match[2], names))}
		for _, name := range testName.FindAllStringSubmatch(names, -1) {
			item.tests = append(item.tests, name[1])
		}
		threats = append(threats, item)
	}
	return threats
}

// faultsOf returns what is wrong with the threats.
func faultsOf(threats []threat, tests map[string]bool) (faults []string) {
	for _, threat := range threats {
		switch {
		case threat.stops == "":
			faults = append(faults, "no answer: "+threat.what)
		case len(threat.tests) == 0:
			faults = append(faults, "no test at the end: "+threat.what)
		}
		for _, name := range threat.tests {
			if !tests[name] {
				faults = append(faults, "there is no "+name+": "+threat.what)
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
	const page = "- **before.** It is no threat.\n\n## Threats\n\n### Some\n\n" +
		"- **good.** `-flag` stops\n  it. `TestGood`\n  `FuzzGood`\n- **none.** An answer.\n- **gone.** An answer. `TestGone`\n" +
		"- **middle.** `TestGood` is it.\n- **open.** `TestGood`\n- **words.** An answer. TestGood\n\n## Another section\n\n- **after.** It is none.\n"
	threats := threatsOf(page)
	require.Len(t, threats, 6)
	assert.Equal(t, threat{"good.", "`-flag` stops\n  it.", []string{"TestGood", "FuzzGood"}}, threats[0])
	faults := faultsOf(threats, map[string]bool{"TestGood": true, "FuzzGood": true})
	for _, of := range []string{"none.", "gone.", "middle.", "open.", "words."} {
		assert.True(t, slices.ContainsFunc(faults, func(fault string) bool { return strings.HasSuffix(fault, of) }), "%s: %q", of, faults)
	}
	assert.Len(t, faults, 5)
}
