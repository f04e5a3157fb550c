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

// addition matches the heading of a change that CONTRIBUTING.md shows, with its diff and its tests behind it.
var addition = regexp.MustCompile("(?m)^## (Add .+)$")

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

// copyTree copies the tracked files, and returns the folder.
func copyTree(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range tracked(t) {
		require.NoError(t, os.MkdirAll(filepath.Join(folder, filepath.Dir(name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	return folder
}

// Each change that CONTRIBUTING.md shows applies to the tree, and the tests that it names pass there.
func TestTheChangesOfContributingApply(t *testing.T) {
	testkit.Long(t)
	const page = "../CONTRIBUTING.md"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	changes := addition.FindAllStringSubmatch(string(text), -1)
	require.Len(t, changes, strings.Count(string(text), "\n```diff\n"))
	require.Len(t, changes, 3)
	folder := copyTree(t)
	run := func(t *testing.T, stdin, name string, args ...string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), name, args...)
		command.Dir, command.Stdin = folder, strings.NewReader(stdin)
		command.Env = append(os.Environ(),
			"GIT_CEILING_DIRECTORIES="+filepath.Dir(folder), testkit.Variable+"=", "GOFLAGS=-vet=off")
		output, err := command.CombinedOutput()
		require.NoError(t, err, "%s %q: %s", name, args, output)
		assert.NotContains(t, string(output), "no tests to run", stdin)
	}
	for _, change := range changes {
		t.Run(change[1], func(t *testing.T) {
			diff, tests := blockBehind(t, page, change[0], "diff"), blockBehind(t, page, change[0], "sh")
			run(t, diff, "git", "apply")
			run(t, tests, "bash", "-ex")
			run(t, diff, "git", "apply", "-R")
		})
	}
}
