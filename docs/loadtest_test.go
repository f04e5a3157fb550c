package docs_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The line above a block whose commands print the same every time.
const exactMark = "<!-- exact -->"

// readExact returns the commands of the marked blocks of a page, in their order.
func readExact(text string) (list []shown, err error) {
	parts := strings.Split(text, exactMark)
	for i, part := range parts[1:] {
		if before := parts[i]; !strings.HasSuffix(before, "\n") && before != "" {
			return nil, fmt.Errorf("mark %d does not begin a line", i+1)
		}
		block, found := strings.CutPrefix(part, "\n```console\n")
		if !found {
			return nil, fmt.Errorf("mark %d has no console block in the next line", i+1)
		}
		block, _, found = strings.Cut("\n"+block, "\n```\n")
		if !found {
			return nil, fmt.Errorf("block %d has no end", i+1)
		}
		commands, err := splitShown(strings.TrimPrefix(block+"\n", "\n"))
		if err != nil {
			return nil, fmt.Errorf("block %d: %w", i+1, err)
		}
		list = append(list, commands...)
	}
	if len(list) == 0 {
		return nil, errors.New("no block is marked as exact")
	}
	return list, nil
}

var programsFolder string // of programs, once they are built

// programs builds counterd and loadtest once for all tests, and returns their folder.
var programs = sync.OnceValues(func() (string, error) {
	var err error
	if programsFolder, err = os.MkdirTemp("", "counterd-docs-"); err != nil {
		return "", err
	}
	output, err := exec.Command("go", "build", "-o", programsFolder, "../cmd/counterd", "../loadtest").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, output)
	}
	return programsFolder, nil
})

// buildPrograms returns the folder that make build would put the programs into.
func buildPrograms(t *testing.T) string {
	t.Helper()
	folder, err := programs()
	require.NoError(t, err)
	return folder
}

// What docs/loadtest.md, docs/limits.md and docs/testdata/exact.md call exact is what its
// commands print, to the letter, on standard output and error; a command that fails says so
// with ; echo $?
func TestTheOutputsOfLoadtestAreExact(t *testing.T) {
	var list []shown
	for _, page := range []string{"loadtest.md", "limits.md", "testdata/exact.md"} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		exact, err := readExact(string(text))
		require.NoError(t, err, page)
		list = append(list, exact...)
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

func TestExactBlocksAreFound(t *testing.T) {
	list, err := readExact("# A\n\n<!-- exact -->\n```console\n$ a \\\n>  -b\none\n\ntwo\n$ c\n```\n\n```console\n$ other\n```\n<!-- exact -->\n```console\n$ d\nthree\n```\n")
	require.NoError(t, err)
	assert.Equal(t, []shown{{"a \\\n -b", "one\n\ntwo\n"}, {"c", ""}, {"d", "three\n"}}, list)
	for name, text := range map[string]string{
		"no block is marked":             "```console\n$ a\n```\n",
		"mark 1 has no console block":    "<!-- exact -->\n\n```console\n$ a\n```\n",
		"mark 2 has no console block":    "<!-- exact -->\n```console\n$ a\n```\n<!-- exact -->\n```sh\na\n```\n",
		"mark 1 does not begin":          "so: <!-- exact -->\n```console\n$ a\n```\n",
		"block 1 has no end":             "<!-- exact -->\n```console\n$ a\n",
		"block 1: output without":        "<!-- exact -->\n```console\none\n$ a\n```\n",
		"block 1: there is no command":   "<!-- exact -->\n```console\n```\n",
		"block 1: a command has no end:": "<!-- exact -->\n```console\n$ a \\\n```\n",
	} {
		_, err := readExact(text)
		assert.ErrorContains(t, err, name)
	}
}
