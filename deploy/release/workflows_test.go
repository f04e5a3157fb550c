package main

import (
	"os"
	"os/exec"
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
		assert.Empty(t, unpinned(string(text)), "%s: name an action by the full hash of a commit, with its version: uses: owner/name@<40 digits> # v1.2.3", name)
	}
	assert.GreaterOrEqual(t, made, 3)
}

// unpinned returns the lines of a workflow that name an action of another repository by what can move: a tag, or a branch.
func unpinned(workflow string) (lines []string) {
	pinned := regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	for _, found := range regexp.MustCompile(`(?m)^[- ]*uses: *(.*)$`).FindAllStringSubmatch(workflow, -1) {
		if !strings.HasPrefix(found[1], "./") && !pinned.MatchString(found[1]) {
			lines = append(lines, found[1])
		}
	}
	return lines
}

func TestUnpinned(t *testing.T) {
	hash := strings.Repeat("0a", 20)
	for _, action := range []string{"./local", "a/b@" + hash + " # v1.2.3", "a/b/c@" + hash + " # v1.20.3"} {
		assert.Empty(t, unpinned("steps:\n  - uses: "+action+"\n    with: {}\n"), action)
	}
	for _, action := range []string{"a/b@v1", "a/b@v1.2.3", "a/b@main", "a/b", "a/b@" + hash, "a/b@" + hash[1:] + " # v1.2.3",
		"a/b@" + hash + " # v1", "docker://a/b:1"} {
		assert.Equal(t, []string{action}, unpinned("steps:\n  - id: x\n    uses: "+action+"\n"), action)
	}
}

// Dependabot looks at each module, at the Dockerfile, and at the actions, as nothing else moves their pins.
func TestDependabotKnowsTheModules(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(project, ".github/dependabot.yml"))
	require.NoError(t, err)
	assert.Contains(t, string(text), "- package-ecosystem: github-actions\n    directory: /\n")
	assert.Contains(t, string(text), "- package-ecosystem: docker\n    directory: /deploy/docker\n")
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

// A version with a hyphen is a prerelease, which users get by its name alone.
func TestPrereleases(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(project, ".github/workflows/release.yml"))
	require.NoError(t, err)
	workflow, faults := actionlint.Parse(text)
	require.Empty(t, faults)
	for version, want := range map[string][]string{
		"v0.2.0":      {"gh release create v0.2.0 --verify-tag --generate-notes --prerelease=false dist/a", "npm publish --access public --tag latest"},
		"v0.2.0-rc.1": {"gh release create v0.2.0-rc.1 --verify-tag --generate-notes --prerelease=true dist/a", "npm publish --access public --tag next"},
	} {
		published := append(calls(t, workflow.Jobs["binaries"], "gh", version), calls(t, workflow.Jobs["npm"], "npm", version)...)
		assert.Equal(t, []string{want[0], "npm ci", want[1]}, published)
	}
	for _, step := range workflow.Jobs["image"].Steps {
		if action, ok := step.Exec.(*actionlint.ExecAction); ok && action.Inputs["tags"] != nil {
			assert.Equal(t, "${{ env.IMAGE }}:${{ steps.version.outputs.version }}", action.Inputs["tags"].Value.Value, "a tag that moves, such as latest, would move to a prerelease")
		}
	}
}

// calls returns the calls of a program by a job's steps, at a tag.
func calls(t *testing.T, job *actionlint.Job, program, tag string) (lines []string) {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(folder, "dist"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "dist", "a"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, program), []byte("#!/bin/sh\necho "+program+` "$@"`+"\n"), 0o755))
	for _, step := range job.Steps {
		run, ok := step.Exec.(*actionlint.ExecRun)
		if !ok || !regexp.MustCompile(`(?m)(^ *|&& )`+program+` `).MatchString(run.Run.Value) {
			continue
		}
		shell := exec.Command("bash", "-e", "-c", run.Run.Value) // as GitHub runs it
		shell.Dir = folder
		shell.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"), "GITHUB_REF_NAME="+tag)
		said, err := shell.CombinedOutput()
		require.NoError(t, err, "%s", said)
		lines = append(lines, strings.Split(strings.TrimSpace(string(said)), "\n")...)
	}
	return lines
}
