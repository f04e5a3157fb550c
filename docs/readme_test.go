package docs_test

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// console matches the blocks of the README that show commands with their output.
var console = regexp.MustCompile("(?s)```console\n(.*?)```")

// What differs from run to run.
var (
	moment = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	perSec = regexp.MustCompile(`(/s +)\d+`)
	tiles  = regexp.MustCompile(`("(second|minute|hour|total)":)\d+`) // fewer when the moment ends a minute or an hour
)

const readmeAddress = "127.0.0.1:8080"

// shown is a command of the README and the output shown.
type shown struct{ command, output string }

func readShown(t *testing.T) (list []shown) {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	for _, block := range console.FindAllStringSubmatch(string(text), -1) {
		commands, err := splitShown(block[1])
		require.NoError(t, err)
		list = append(list, commands...)
	}
	return list
}

// splitShown splits a block. A command whose line ends with a backslash goes on in the
// next line, behind "> " as in a terminal.
func splitShown(block string) (list []shown, err error) {
	goesOn := false
	for line := range strings.Lines(block) {
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case goesOn:
			list[len(list)-1].command += "\n" + strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "> ")
		case isCommand:
			list = append(list, shown{command: strings.TrimSuffix(command, "\n")})
		case len(list) == 0:
			return nil, errors.New("output without a command")
		default:
			list[len(list)-1].output += line
		}
		goesOn = (goesOn || isCommand) && strings.HasSuffix(line, "\\\n")
	}
	switch {
	case len(list) == 0:
		return nil, errors.New("there is no command")
	case goesOn:
		return nil, errors.New("a command has no end: " + list[len(list)-1].command)
	}
	return list, nil
}

// startServer runs counterd on a free port and returns its address.
func startServer(t *testing.T, dir string) string {
	t.Helper()
	binary := filepath.Join(dir, "counterd")
	build, err := exec.Command("go", "build", "-o", binary, "../cmd/counterd").CombinedOutput()
	require.NoError(t, err, "%s", build)
	server := exec.Command(binary, "-listen", "127.0.0.1:0")
	log, err := server.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		server.Process.Kill()
		server.Wait()
	})
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if _, rest, found := strings.Cut(lines.Text(), "msg=serving address="); found {
			address, _, _ := strings.Cut(rest, " ")
			return address
		}
	}
	t.Fatal("counterd does not serve")
	return ""
}

// The README's commands are run, and their answers are those shown, but for what
// depends on the time.
func TestTheReadmeIsTrue(t *testing.T) {
	address := startServer(t, t.TempDir())
	list := readShown(t)
	require.Greater(t, len(list), 6)
	for _, shown := range list {
		command := strings.ReplaceAll(shown.command, readmeAddress, address)
		command = strings.Replace(command, "./loadtest replay", "./loadtest replay -url http://"+address, 1)
		run := exec.Command("bash", "-c", command)
		run.Dir = ".."
		var stderr bytes.Buffer
		run.Stderr = &stderr
		output, err := run.Output()
		require.NoError(t, err, "%s: %s", command, &stderr)
		assert.Equal(t, steady(shown.output), steady(string(output)), command)
	}
}

// steady replaces what differs from run to run.
func steady(output string) string {
	output = tiles.ReplaceAllString(moment.ReplaceAllString(output, "TIME"), "${1}N")
	return strings.TrimSpace(perSec.ReplaceAllString(output, "${1}N"))
}

// The embedding in the README is the Example that is compiled and run.
func TestTheReadmeEmbedsTheExample(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	example, err := os.ReadFile("../hierarchy/example_test.go")
	require.NoError(t, err)
	_, block, _ := strings.Cut(string(readme), "```go\n")
	block, _, _ = strings.Cut(block, "```")
	for line := range strings.Lines(block) {
		assert.Contains(t, string(example), strings.TrimSpace(line))
	}
}
