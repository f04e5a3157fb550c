package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// All that is released is of the newest version of the changelog, as the release workflow wants it of its tag.
func TestVersionsAreOne(t *testing.T) {
	var newest string
	for _, place := range []struct{ file, version string }{
		{"CHANGELOG.md", `(?m)^## (\d[^ ]*) - \d{4}-\d{2}-\d{2}$`},
		{"deploy/chart/Chart.yaml", `(?m)^version: (.*)$`},
		{"deploy/chart/Chart.yaml", `(?m)^appVersion: (.*)$`},
		{"deploy/kubernetes/kustomization.yaml", `(?m)^    newTag: (.*)$`},
		{"clients/typescript/package.json", `(?m)^  "version": "(.*)",$`},
		{"clients/typescript/package-lock.json", `(?m)^  "version": "(.*)",$`},
		{"clients/python/pyproject.toml", `(?m)^version = "(.*)"$`},
	} {
		text, err := os.ReadFile(filepath.Join("..", place.file))
		require.NoError(t, err)
		found := regexp.MustCompile(place.version).FindSubmatch(text)
		require.NotNil(t, found, "%s: %s", place.file, place.version)
		if newest == "" {
			newest = string(found[1])
		}
		assert.Equal(t, newest, string(found[1]), place.file)
	}
	// Of the names that Semantic Versioning allows for a prerelease, PyPI knows these.
	assert.Regexp(t, `^\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?$`, newest)
}
