package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit"
)

// released are the places that a release gives its version.
var released = []struct{ file, version string }{
	{"CHANGELOG.md", `(?s)^.*?\n## (\d[^ ]*) - \d{4}-\d{2}-\d{2}\n`}, // the first one is the newest
	{"deploy/chart/Chart.yaml", `(?m)^version: (.*)$`},
	{"deploy/chart/Chart.yaml", `(?m)^appVersion: (.*)$`},
	{"deploy/chart/README.md", ` --version (\S+)`},
	{"clients/typescript/package.json", `(?m)^  "version": "(.*)",$`},
	{"clients/typescript/package-lock.json", `(?m)^  "version": "(.*)",$`},
	{"clients/typescript/package-lock.json", `(?m)^      "name": "counterd",\n      "version": "(.*)",$`},
	{"clients/python/pyproject.toml", `(?m)^version = "(.*)"$`},
	{"api/openapi.yaml", `(?m)^  version: (.*)$`},
	{"docs/operations.md", `counterd_(\d[^_]*)_\S*amd64`},
	{"docs/operations.md", `cmd/counterd@v([\w.-]+)`},
	{"docs/operations.md", `counterd/counterd:([\w.-]+)`},
	{"docs/operations.md", ` --version (\S+)`},
}

// unreleased matches files that name versions of the past, of examples and of other projects.
var unreleased = regexp.MustCompile(`^(CHANGELOG|CONTRIBUTING|docs/upgrading)\.md$|_test\.go$|` +
	`(^|/)(go\.mod|go\.sum|package-lock\.json|THIRD_PARTY_LICENSES)$`)

// tracked returns the tree's files that git does not ignore, as they are, by their names.
func tracked(t *testing.T) map[string]string {
	t.Helper()
	git := exec.CommandContext(t.Context(), testkit.Tool(t, "apt-get install git", "git"),
		"ls-files", "-z", "--cached", "--others", "--exclude-standard")
	git.Dir = ".."
	list, err := git.Output()
	require.NoError(t, err, "git lists the files of a checkout")
	files := map[string]string{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join("..", name))
		if os.IsNotExist(err) {
			continue // it is removed, and that is not committed yet
		}
		require.NoError(t, err)
		files[name] = string(text)
	}
	return files
}

// All that is released is of the newest version of the changelog, as the release workflow wants it of its tag. No other
// place of the tree has that version.
func TestVersionsAreOne(t *testing.T) {
	var newest string
	files := tracked(t)
	for _, place := range released {
		pattern := regexp.MustCompile(place.version)
		found := pattern.FindAllStringSubmatch(files[place.file], -1)
		require.NotEmpty(t, found, "%s: %s", place.file, place.version)
		if newest == "" {
			newest = found[0][1]
		}
		for _, match := range found {
			assert.Equal(t, newest, match[1], "%s: %s", place.file, place.version)
		}
		files[place.file] = pattern.ReplaceAllString(files[place.file], "")
	}
	// Of the names that Semantic Versioning allows for a prerelease, PyPI knows these.
	assert.Regexp(t, `^\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?$`, newest)

	written := regexp.MustCompile(`(^|[^\d.])` + regexp.QuoteMeta(newest) + `($|[^\d.]|\.(\D|$))`)
	for name, text := range files {
		if !unreleased.MatchString(name) {
			assert.Empty(t, written.FindString(text), "%s has the version: name it in released, or leave it out", name)
		}
	}
}
