package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rhysd/actionlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWorkflowsAreValid(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(project, ".github/workflows/*.yml"))
	require.NoError(t, err)
	require.Len(t, files, 4)
	var said strings.Builder
	linter, err := actionlint.NewLinter(&said, &actionlint.LinterOptions{})
	require.NoError(t, err)
	faults, err := linter.LintFiles(files, nil)
	require.NoError(t, err)
	assert.Empty(t, faults, said.String())

	makefile, err := os.ReadFile(filepath.Join(project, "Makefile"))
	require.NoError(t, err)
	made := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, target := range regexp.MustCompile(`\bmake ([a-z-]+)`).FindAllSubmatch(text, -1) {
			assert.Regexp(t, `(?m)^`+string(target[1])+`:`, string(makefile), name)
			made++
		}
		// A workflow may do nothing, and each job what it says.
		assert.Contains(t, string(text), "\npermissions: {}\n", name)
		assert.Contains(t, string(text), "persist-credentials: false", name)
	}
	assert.GreaterOrEqual(t, made, 3)
}

// Dependabot looks at each module.
func TestDependabotKnowsTheModules(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(project, ".github/dependabot.yml"))
	require.NoError(t, err)
	for file, ecosystem := range map[string]string{"go.mod": "gomod", "package.json": "npm"} {
		_, entry, _ := strings.Cut(string(text), "package-ecosystem: "+ecosystem+"\n")
		entry, _, _ = strings.Cut(entry, "- package-ecosystem")
		for _, folder := range []string{"", "*/", "*/*/", "*/*/*/"} {
			found, err := filepath.Glob(filepath.Join(project, folder, file))
			require.NoError(t, err)
			for _, name := range found {
				if strings.Contains(name, "node_modules") || strings.Contains(name, "testdata") {
					continue
				}
				relative, err := filepath.Rel(project, filepath.Dir(name))
				require.NoError(t, err)
				directory := "/" + strings.TrimPrefix(relative, ".")
				assert.Contains(t, entry, "- "+directory+"\n", "dependabot.yml lists no %s of %s", ecosystem, directory)
			}
		}
	}
}
