package docs_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events/rulesfile"
)

// yamlBlock matches the blocks of a page that show rules.
var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// The rules that docs/limits.md and docs/rules.md show are valid, without a warning.
func TestTheRulesShownAreValid(t *testing.T) {
	for page, want := range map[string]int{"limits.md": 3, "rules.md": 2} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		blocks := yamlBlock.FindAllStringSubmatch(string(text), -1)
		require.Len(t, blocks, want, page)
		for _, block := range blocks {
			rules, err := rulesfile.Parse([]byte(block[1]))
			require.NoError(t, err, "%s: %s", page, block[1])
			assert.Empty(t, rules.Warnings, "%s: %s", page, block[1])
		}
	}
}
