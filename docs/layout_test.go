package docs_test

import (
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/counterd/counterd"

// readFloors returns the floor of each package that design.md lists. The lowest floor is 0.
func readFloors(t *testing.T) map[string]int {
	t.Helper()
	design, err := os.ReadFile("design.md")
	require.NoError(t, err)
	_, block, found := strings.Cut(string(design), "```floors\n")
	require.True(t, found, "design.md has no block of floors")
	block, _, _ = strings.Cut(block, "\n```")
	lines := strings.Split(block, "\n")
	floors := map[string]int{}
	for i, line := range lines {
		for folder := range strings.SplitSeq(line, ", ") {
			floors[folder] = len(lines) - 1 - i
		}
	}
	return floors
}

// isTool reports whether a folder holds tools and kits, which may import every floor.
func isTool(folder string) bool {
	return folder == "loadtest" || strings.HasPrefix(folder, "loadtest/") || strings.HasPrefix(folder, "internal/testkit") || folder == "internal/store/storetest"
}

// A package imports packages of lower floors only, and no tool.
func TestPackagesImportLowerFloors(t *testing.T) {
	floors, seen := readFloors(t), map[string]bool{}
	walkSources(t, func(file string) error {
		folder := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file)), "../")
		if folder == ".." {
			folder = "counterd"
		}
		if isTool(folder) {
			return nil
		}
		floor, listed := floors[folder]
		if seen[folder] = true; !assert.True(t, listed, "%s has no floor in design.md", folder) {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range parsed.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			imported, ours := strings.CutPrefix(name, module+"/")
			if name == module {
				imported, ours = "counterd", true
			}
			if ours {
				lower, listed := floors[imported]
				assert.True(t, listed && lower < floor, "%s imports %s, which is not on a lower floor", file, imported)
			}
		}
		return nil
	})
	for folder := range floors {
		assert.True(t, seen[folder], "design.md has a floor for %s, which does not exist", folder)
	}
}

// What is outside of internal and loadtest is meant to be imported.
func TestImportablePackagesAreFew(t *testing.T) {
	importable := map[string]bool{}
	walkSources(t, func(file string) error {
		folder := filepath.ToSlash(filepath.Dir(file))
		if !strings.Contains(folder, "internal") && !strings.HasPrefix(folder, "../loadtest") && !strings.HasPrefix(folder, "../cmd") {
			importable[folder] = true
		}
		return nil
	})
	assert.LessOrEqual(t, len(importable), 10, "%v", importable)
	tracked, err := exec.Command("git", "ls-tree", "-d", "--name-only", "HEAD", "../").Output()
	require.NoError(t, err)
	folders := slices.DeleteFunc(strings.Fields(string(tracked)), func(folder string) bool { return strings.HasPrefix(folder, "../.") })
	assert.LessOrEqual(t, len(folders), 12, "%v", folders)
}
