package docs_test

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// console matches the blocks of a page that show commands with their output.
var console = regexp.MustCompile("(?s)```console\n(.*?)```")

// What differs from run to run.
var (
	moment = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	perSec = regexp.MustCompile(`(/s +)\d+`)
	tiles  = regexp.MustCompile(`("(second|minute|hour|total)":)\d+`) // fewer when the moment ends a minute or an hour
)

const readmeAddress = "127.0.0.1:8080"

// shown is a command of a page and the output shown.
type shown struct{ command, output string }

const readme = "../README.md"

func readShown(t *testing.T, page string) (list []shown) {
	t.Helper()
	text, err := os.ReadFile(page)
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

// blockBehind returns the first block of the language behind a line of a page.
func blockBehind(t *testing.T, page, line, language string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), line)
	require.True(t, found, "no line is %q", line)
	_, rest, found = strings.Cut(rest, "\n```"+language+"\n")
	require.True(t, found, "no block of %s is behind %q", language, line)
	block, _, found := strings.Cut(rest, "```")
	require.True(t, found)
	return block
}

// serves is a command of a page that serves.
var serves = regexp.MustCompile(`(?m)^go run ./cmd/counterd (.*)\n`)

// serve runs a command of a page that serves, by a counterd, in a folder and on free ports, and returns
// its address.
func serve(t *testing.T, counterd, command, dir string) string {
	t.Helper()
	testkit.Tool(t, "apt-get install curl", "curl") // which the pages call it with
	match := serves.FindStringSubmatch(command)
	require.NotNil(t, match, "the command does not serve: %s", command)
	args := strings.Fields(match[1])
	for i, arg := range args {
		if arg == ":8080" || arg == ":9090" || arg == "127.0.0.1:8081" {
			args[i] = "127.0.0.1:0"
		}
	}
	if !slices.Contains(args, "-listen") {
		args = append(args, "-listen", "127.0.0.1:0")
	}
	server := exec.Command(counterd, args...)
	server.Dir = dir
	server.Env = append(os.Environ(), "COUNTERD_TIMEOUT=1s") // the machine may be busy
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
	t.Fatalf("counterd %s does not serve", match[1])
	return ""
}

// The README's commands are run, and their answers are those shown, but for what
// depends on the time.
func TestTheReadmeIsTrue(t *testing.T) {
	const begin = "A limit takes five lines"
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "rules.yaml"), []byte(blockBehind(t, readme, begin, "yaml")), 0o600))
	address := serve(t, filepath.Join(buildPrograms(t), "counterd"), blockBehind(t, readme, begin, "sh"), folder)
	list := readShown(t, readme)
	require.Greater(t, len(list), 6)
	for _, shown := range list {
		command := strings.ReplaceAll(shown.command, readmeAddress, address)
		command = strings.Replace(command, "go run ./loadtest replay", filepath.Join(buildPrograms(t), "loadtest")+" replay", 1)
		command = strings.Replace(command, "-increment loadtest/", "-increment -url http://"+address+" loadtest/", 1)
		run := exec.Command("bash", "-o", "pipefail", "-c", command)
		run.Dir = ".."
		var stderr bytes.Buffer
		run.Stderr = &stderr
		output, err := run.Output()
		require.NoError(t, err, "%s: %s", command, &stderr)
		assert.Equal(t, steady(shown.output), steady(string(output)), command)
	}
}

// The first screen of the README names the page, and has a small picture of it.
func TestTheReadmeShowsThePage(t *testing.T) {
	text, err := os.ReadFile(readme)
	require.NoError(t, err)
	screen := strings.Join(strings.SplitN(string(text), "\n", 41)[:40], "\n")
	assert.Contains(t, screen, "/ui/")
	image := regexp.MustCompile(`!\[[^\]]+\]\(([^)]+\.png)\)`).FindStringSubmatch(screen)
	require.NotNil(t, image)
	info, err := os.Stat(filepath.Join(filepath.Dir(readme), image[1]))
	require.NoError(t, err)
	assert.Less(t, info.Size(), int64(150<<10))
}

// What the README has others call with serves: its certificate, its tokens and its flags.
func TestTheReadmeServesOverTLS(t *testing.T) {
	block := blockBehind(t, readme, "This certificate signs itself", "sh")
	folder := t.TempDir()
	testkit.Tool(t, "apt-get install openssl", "openssl")
	steps := exec.CommandContext(t.Context(), "bash", "-ec", serves.ReplaceAllString(block, ""))
	steps.Dir = folder
	output, err := steps.CombinedOutput()
	require.NoError(t, err, "%s", output)
	_, port, err := net.SplitHostPort(serve(t, filepath.Join(buildPrograms(t), "counterd"), block, folder))
	require.NoError(t, err)
	request := blockBehind(t, readme, "In another terminal:", "sh")
	require.Contains(t, request, "https://localhost:8080/")
	ask := exec.CommandContext(t.Context(), "bash", "-ec", strings.Replace(request, "localhost:8080", "localhost:"+port, 1))
	ask.Dir = folder
	output, err = ask.CombinedOutput()
	require.NoError(t, err, "%s", output)
	assert.Contains(t, string(output), `{"allowed":true,`)
}

// The README's two servers on one machine keep each counter: either of them may be stopped.
func TestTheReadmeServesOnTwoServers(t *testing.T) {
	block := blockBehind(t, readme, "On one machine, with two Memcached servers", "sh")
	listens := regexp.MustCompile(`(?m)^memcached -l ([\d.]+) -p (\d+) &$`).FindAllStringSubmatch(block, -1)
	require.Len(t, listens, 2)
	servers := []*memcachedtest.Server{memcachedtest.Start(t), memcachedtest.Start(t)}
	for i, one := range listens {
		name := one[1] + ":" + one[2]
		require.Contains(t, block, name)
		block = strings.Replace(block, name, servers[i].Addr, 1)
	}
	address := serve(t, filepath.Join(buildPrograms(t), "counterd"), block, t.TempDir())
	hit := func() string {
		ask := exec.CommandContext(t.Context(), "curl", "-s", "--json", `{"features": {"ip": "192.168.0.1"}}`, "http://"+address+"/v1/events/url_shorten/hit")
		output, err := ask.Output()
		require.NoError(t, err)
		return string(output)
	}
	assert.Contains(t, hit(), `"count":1,"remaining":99,`)
	servers[0].Stop()
	assert.Contains(t, hit(), `"count":2,"remaining":98,`)
}

// makes matches a command of a page that runs a target of the Makefile.
var makes = regexp.MustCompile(`(?m)^make ([a-z]+) `)

// The Makefile has the targets that the README and CONTRIBUTING.md name first.
func TestTheReadmeMakesTargets(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	assert.Contains(t, string(makefile), "\nrun:\n\t@echo 'Compiling counterd.")
	for page, title := range map[string]string{readme: "# counterd\n", "../CONTRIBUTING.md": "# Contributing\n"} {
		targets := makes.FindAllStringSubmatch(blockBehind(t, page, title, "sh"), -1)
		require.Len(t, targets, 2, page)
		for _, target := range targets {
			assert.Contains(t, string(makefile), "\n"+target[1]+":", page)
		}
	}
}

// steady replaces what differs from run to run.
func steady(output string) string {
	output = tiles.ReplaceAllString(moment.ReplaceAllString(output, "TIME"), "${1}N")
	output = strings.ReplaceAll(emptyHour.ReplaceAllString(output, ""), "},]", "}]")
	return strings.TrimSpace(perSec.ReplaceAllString(output, "${1}N"))
}

// emptyHour matches an interval of a history without a count: there is one more if the hour turns meanwhile.
var emptyHour = regexp.MustCompile(`{"start":"TIME","count":0},?`)
