package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rhysd/actionlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rights are what each job may do. A step has the rights of its job, and so has what it installs.
var rights = map[string][]string{
	"codeql.yml analyze":      {"contents: read", "security-events: write"},
	"release.yml binaries":    {"attestations: write", "contents: read", "id-token: write"},
	"release.yml chart":       {"contents: read", "packages: write"},
	"release.yml clients":     {"contents: read"},
	"release.yml image":       {"attestations: write", "contents: read", "id-token: write", "packages: write"},
	"release.yml npm":         {"id-token: write"},
	"release.yml pypi":        {"id-token: write"},
	"release.yml release":     {"contents: write"},
	"scorecard.yml scorecard": {"contents: read", "id-token: write", "security-events: write"},
	"test.yml test":           {"contents: read"},
}

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
	made, granted := 0, map[string][]string{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, target := range regexp.MustCompile(`\bmake ([a-z-]+)`).FindAllSubmatch(text, -1) {
			assert.Regexp(t, `(?m)^`+string(target[1])+`:`, string(makefile), name)
			made++
		}
		workflow, faults := actionlint.Parse(text)
		require.Empty(t, faults)
		assert.Empty(t, granting(workflow.Permissions), name) // and each job may do what it says
		for id, job := range workflow.Jobs {
			granted[filepath.Base(name)+" "+id] = granting(job.Permissions)
			for _, step := range job.Steps {
				if action, ok := step.Exec.(*actionlint.ExecAction); ok && strings.HasPrefix(action.Uses.Value, "actions/checkout@") {
					keeps := action.Inputs["persist-credentials"]
					assert.True(t, keeps != nil && keeps.Value.Value == "false", "%s: %s: set persist-credentials: false", name, id)
				}
			}
		}
		assert.Empty(t, unpinned(string(text)), "%s: name an action by the full hash of a commit, with its version: uses: owner/name@<40 digits> # v1.2.3", name)
	}
	assert.GreaterOrEqual(t, made, 3)
	assert.Equal(t, rights, granted)
}

// granting returns the rights of permissions, in order.
func granting(p *actionlint.Permissions) (all []string) {
	switch {
	case p == nil:
		return []string{"not given"}
	case p.All != nil:
		return []string{p.All.Value}
	}
	for name, scope := range p.Scopes {
		all = append(all, name+": "+scope.Value.Value)
	}
	slices.Sort(all)
	return all
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

func releaseJobs(t *testing.T) map[string]*actionlint.Job {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(project, ".github/workflows/release.yml"))
	require.NoError(t, err)
	workflow, faults := actionlint.Parse(text)
	require.Empty(t, faults)
	return workflow.Jobs
}

// Archives and clients are built before anything is published, npm and PyPI come after image and chart, and the release is
// the last. Packages of npm, PyPI and the system are installed in the one job that may not publish.
func TestTheOrderOfARelease(t *testing.T) {
	installs := regexp.MustCompile(`\b(npm (ci|i|install)|npx|pip3? |apt-get install)`)
	needs, installing := map[string][]string{}, map[string]bool{}
	for id, job := range releaseJobs(t) {
		for _, needed := range job.Needs {
			needs[id] = append(needs[id], needed.Value)
		}
		for _, step := range job.Steps {
			if run, ok := step.Exec.(*actionlint.ExecRun); ok && installs.MatchString(run.Run.Value) {
				installing[id] = true
			}
		}
	}
	assert.Equal(t, map[string][]string{
		"clients": {"binaries"}, "image": {"clients"}, "chart": {"image"}, "npm": {"chart"}, "pypi": {"chart"}, "release": {"npm", "pypi"},
	}, needs)
	assert.Equal(t, map[string]bool{"clients": true}, installing)
}

// A tag that is not of a commit of main releases nothing.
func TestATagThatIsNotOfMain(t *testing.T) {
	git := tool(t, "git", "git")
	check, ok := releaseJobs(t)["binaries"].Steps[1].Exec.(*actionlint.ExecRun) // the first one has it checked out
	require.True(t, ok)
	folder := t.TempDir()
	commit := func(message string) string {
		output(t, folder, git, "-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false",
			"commit", "--quiet", "--allow-empty", "--message="+message)
		return strings.TrimSpace(output(t, folder, git, "rev-parse", "HEAD"))
	}
	output(t, folder, git, "init", "--quiet")
	older, newest := commit("older"), commit("newest")
	output(t, folder, git, "update-ref", "refs/remotes/origin/main", newest)
	for hash, passes := range map[string]bool{older: true, newest: true, commit("of a branch"): false} {
		shell := exec.Command("bash", "-e", "-c", check.Run.Value)
		shell.Dir = folder
		shell.Env = append(os.Environ(), "GITHUB_SHA="+hash)
		said, err := shell.CombinedOutput()
		assert.Equal(t, passes, err == nil, "%s", said)
	}
}

// A version with a hyphen is a prerelease, which users get by its name alone.
func TestPrereleases(t *testing.T) {
	jobs := releaseJobs(t)
	for version, want := range map[string][]string{
		"v0.2.0":      {"gh release create v0.2.0 --verify-tag --generate-notes --prerelease=false dist/a", "npm publish --access public --tag latest ./npm/a"},
		"v0.2.0-rc.1": {"gh release create v0.2.0-rc.1 --verify-tag --generate-notes --prerelease=true dist/a", "npm publish --access public --tag next ./npm/a"},
	} {
		assert.Equal(t, want, append(calls(t, jobs["release"], "gh", version), calls(t, jobs["npm"], "npm", version)...))
	}
	for _, step := range jobs["image"].Steps {
		if action, ok := step.Exec.(*actionlint.ExecAction); ok && action.Inputs["tags"] != nil {
			assert.Equal(t, "${{ env.IMAGE }}:${{ steps.version.outputs.version }}", action.Inputs["tags"].Value.Value, "a tag that moves, such as latest, would move to a prerelease")
		}
	}
}

// calls returns the calls of a program by a job's steps, at a tag.
func calls(t *testing.T, job *actionlint.Job, program, tag string) (lines []string) {
	t.Helper()
	folder := t.TempDir()
	for _, artifact := range []string{"dist", "npm"} {
		require.NoError(t, os.Mkdir(filepath.Join(folder, artifact), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(folder, artifact, "a"), nil, 0o600))
	}
	bin := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bin, program), []byte("#!/bin/sh\necho "+program+` "$@"`+"\n"), 0o755))
	for _, step := range job.Steps {
		run, ok := step.Exec.(*actionlint.ExecRun)
		if !ok || !regexp.MustCompile(`(?m)(^ *|&& )`+program+` `).MatchString(run.Run.Value) {
			continue
		}
		shell := exec.Command("bash", "-e", "-c", run.Run.Value) // as GitHub runs it
		shell.Dir = folder
		shell.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "GITHUB_REF_NAME="+tag)
		said, err := shell.CombinedOutput()
		require.NoError(t, err, "%s", said)
		lines = append(lines, strings.Split(strings.TrimSpace(string(said)), "\n")...)
	}
	return lines
}
