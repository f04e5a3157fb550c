// Package examples_test runs the command of each page of this folder.
package examples_test

import (
	"bufio"
	"errors"
	"github.com/counterd/counterd/internal/testkit"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// maxWait is how long what an example has started may take to end after it.
const maxWait = 10 * time.Second

var (
	// command is the block of a page with its one command and the output.
	command = regexp.MustCompile("(?s)```console\n\\$ go run \\./(\\S+)\n(.*?)```")
	// moment matches what differs from run to run: the times until there is room.
	moment = regexp.MustCompile(`(;t=|Retry-After: |again in )\w+`)
)

func steady(output string) string { return moment.ReplaceAllString(output, "${1}N") }

// pages returns the pages of the examples, by their folders.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, pattern := range []string{"*/README.md", "*/*/README.md"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			found[filepath.ToSlash(filepath.Dir(file))] = string(text)
		}
	}
	return found
}

// inGroup makes a command the first process of a group.
func inGroup(command *exec.Cmd) *exec.Cmd {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.WaitDelay = maxWait
	return command
}

// requireEnded fails the test if a process of the command's group is left, and kills it.
func requireEnded(t *testing.T, command *exec.Cmd) {
	t.Helper()
	group := -command.Process.Pid
	defer syscall.Kill(group, syscall.SIGKILL)
	testkit.Await(t, maxWait, "no process is left running", func() bool { return errors.Is(syscall.Kill(group, 0), syscall.ESRCH) })
}

// Each page's command prints what the page shows, and leaves nothing running.
func TestThePagesAreTrue(t *testing.T) {
	for folder, page := range pages(t) {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			shown := command.FindAllStringSubmatch(page, -1)
			require.Len(t, shown, 1, "a page has one command")
			assert.Equal(t, folder, shown[0][1])
			run := inGroup(exec.CommandContext(t.Context(), "go", "run", "./"+folder))
			var said strings.Builder
			run.Stderr = &said
			output, err := run.Output()
			requireEnded(t, run)
			require.NoError(t, err, "%s", &said)
			assert.Equal(t, steady(shown[0][2]), steady(string(output)))
			assert.Empty(t, said.String())
		})
	}
}

// Each program has a page, whose command is run.
func TestEachProgramHasItsPage(t *testing.T) {
	list, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{if eq .Name "main"}}{{.ImportPath}}{{end}}`, "./...").Output()
	require.NoError(t, err)
	var folders []string
	for program := range strings.FieldsSeq(string(list)) {
		folders = append(folders, strings.TrimPrefix(program, "github.com/counterd/counterd/examples/"))
	}
	assert.ElementsMatch(t, folders, slices.Collect(maps.Keys(pages(t))))
}

// An example that a signal ends stops what it has started.
func TestAnInterruptedExample(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "regions")
	output, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./regions").CombinedOutput()
	require.NoError(t, err, "%s", output)
	run := inGroup(exec.CommandContext(t.Context(), binary))
	out, err := run.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, run.Start())
	started := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "$ ") {
			started++
		}
		if strings.HasPrefix(lines.Text(), "# the link is cut") {
			require.NoError(t, run.Process.Signal(os.Interrupt))
		}
	}
	assert.Equal(t, 4, started)
	require.Error(t, run.Wait())
	assert.Equal(t, 1, run.ProcessState.ExitCode())
	requireEnded(t, run)
}
