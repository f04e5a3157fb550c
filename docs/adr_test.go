package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	// number is one of two digits or more, of a figure in a table.
	number = regexp.MustCompile(`\d[\d,.]*\d`)
	// tableRow matches a row with three columns.
	tableRow = regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$`)
)

// Each decision has its sections, and each figure in its table is in a page that the row links to.
func TestFiguresOfDecisions(t *testing.T) {
	pages, err := filepath.Glob("adr/0*.md")
	require.NoError(t, err)
	require.Len(t, pages, 5)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, heading := range []string{
			"# " + strings.TrimLeft(filepath.Base(page)[:4], "0") + ". ", "\n## Context\n", "\n## Decision\n",
			"\n## Alternatives, measured\n", "\n## Consequences\n",
		} {
			assert.Contains(t, string(text), heading, page)
		}
		found := 0
		for _, row := range tableRow.FindAllStringSubmatch(string(text), -1) {
			var sources strings.Builder
			for _, target := range link.FindAllStringSubmatch(row[3], -1) {
				source, err := os.ReadFile(filepath.Join("adr", target[1]))
				require.NoError(t, err)
				sources.Write(source)
			}
			for _, figure := range number.FindAllString(row[2], -1) {
				assert.Regexp(t, `(^|[^\d,.])`+regexp.QuoteMeta(figure)+`([^\d]|$)`, sources.String(), "%s: %s", page, row[0])
				found++
			}
		}
		assert.Positive(t, found, page)
	}
}
