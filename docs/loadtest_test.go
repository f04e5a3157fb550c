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

	"github.com/counterd/counterd/internal/testkit/builttest"
)

// exactBlock matches a block whose commands print the same every time: exactMark is in the line above it.
var exactBlock = regexp.MustCompile("(?ms)^" + exactMark + "\n```console\n(.*?)^```$")

const exactMark = "<!-- exact -->"

// buildPrograms returns the folder that make build would put the programs into.
func buildPrograms(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	_, err := builttest.Counterd(dir)
	require.NoError(t, err)
	path, err := builttest.Loadtest(dir)
	require.NoError(t, err)
	return filepath.Dir(path)
}

// What docs/loadtest.md, docs/limits.md and docs/testdata/exact.md call exact is what its
// commands print, to the letter, on standard output and error; a command that fails says so
// with ; echo $?
func TestTheOutputsOfLoadtestAreExact(t *testing.T) {
	var list []shown
	for _, page := range []string{"loadtest.md", "limits.md", "testdata/exact.md"} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		blocks := exactBlock.FindAllStringSubmatch(string(text), -1)
		require.Len(t, blocks, strings.Count(string(text), exactMark), page)
		require.NotEmpty(t, blocks, page)
		for _, block := range blocks {
			commands, err := splitShown(block[1])
			require.NoError(t, err, page)
			list = append(list, commands...)
		}
	}
	path := buildPrograms(t) + string(filepath.ListSeparator) + os.Getenv("PATH")
	for _, shown := range list {
		run := exec.CommandContext(t.Context(), "bash", "-c", shown.command)
		run.Dir = ".."
		run.Env = append(os.Environ(), "PATH="+path, "TMPDIR="+t.TempDir())
		output, err := run.CombinedOutput()
		if assert.NoError(t, err, "%s\n%s", shown.command, output) {
			assert.Equal(t, shown.output, string(output), shown.command)
		}
	}
}
