package docs_test

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// linkedFrom returns the files that a page links to.
func linkedFrom(t *testing.T, page string) (files []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, match := range link.FindAllStringSubmatch(string(text), -1) {
		if match[1] != "" {
			files = append(files, path.Join(path.Dir(page), match[1]))
		}
	}
	return files
}

// Each page is in the index, or in that of its folder, and each item of the index is one line with a link.
func TestTheIndexHasAllPages(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	indexed := linkedFrom(t, "README.md")
	for _, page := range slices.Concat(pages, []string{"../README.md", "../CONTRIBUTING.md", "../SECURITY.md"}) {
		assert.True(t, page == "README.md" || slices.Contains(indexed, page), "docs/README.md has no line for %s", page)
	}
	decisions, err := filepath.Glob("adr/0*.md")
	require.NoError(t, err)
	for _, page := range decisions {
		assert.Contains(t, linkedFrom(t, "adr/README.md"), page)
	}
	index, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, item := range strings.Split(string(index), "\n- ")[1:] {
		assert.Regexp(t, link, item)
	}
}

// The tests that upgrading.md names hold what is stable.
func TestTheTestsOfUpgrading(t *testing.T) {
	page, err := os.ReadFile("upgrading.md")
	require.NoError(t, err)
	named := testName.FindAllStringSubmatch(string(page), -1)
	require.Len(t, named, 3)
	tests := testsOfTheTree(t)
	for _, name := range named {
		assert.True(t, tests[name[1]], "there is no %s", name[1])
	}
}
