package counterd_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

const module = "github.com/counterd/counterd"

// goBlock is a block of Go in README.md.
var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// exampleBody returns the lines of Example.
func exampleBody(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	_, body, found := strings.Cut(string(text), "func Example() {\n")
	require.True(t, found)
	body, _, found = strings.Cut(body, "\t// Output:")
	require.True(t, found)
	return strings.TrimPrefix(strings.ReplaceAll(body, "\n\t", "\n"), "\t")
}

// embedding returns the embedding example: that of README.md, where there is one.
func embedding(t *testing.T) string {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, block := range goBlock.FindAllStringSubmatch(string(readme), -1) {
		if strings.Contains(block[1], "counterd.New(") {
			assert.Equal(t, exampleBody(t), block[1], "README.md shows Example")
			return block[1]
		}
	}
	return exampleBody(t)
}

// program makes a main program of lines of Go: it imports what they name.
func program(lines string) string {
	imports := fmt.Sprintf("%q\n", module)
	for _, name := range []string{"context", "fmt", "log", "net/http", "time"} {
		if strings.Contains(lines, name[strings.LastIndexByte(name, '/')+1:]+".") {
			imports += fmt.Sprintf("%q\n", name)
		}
	}
	return "package main\n\nimport (\n" + imports + ")\n\nfunc main() {\n" + lines + "}\n"
}

// runAlone runs a main program in a module of its own, which takes this module from here and all
// others from the module cache.
func runAlone(t *testing.T, text string) string {
	t.Helper()
	here, err := os.Getwd()
	require.NoError(t, err)
	folder := t.TempDir()
	mod, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	_, requirements, found := strings.Cut(string(mod), "\nrequire (")
	require.True(t, found)
	requirements, _, _ = strings.Cut(requirements, "\ntool ")
	sum, err := os.ReadFile("go.sum")
	require.NoError(t, err)
	for name, content := range map[string]string{
		"main.go": text,
		"go.sum":  string(sum),
		"go.mod":  "module example.com/embedding\n\ngo 1.26.0\n\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + here + "\n\nrequire (" + requirements,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
	}
	run := exec.CommandContext(t.Context(), "go", "run", ".")
	run.Dir = folder
	run.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off", "GOTOOLCHAIN=local")
	output, err := run.Output()
	if failed, ok := err.(*exec.ExitError); ok {
		require.NoError(t, err, "%s", failed.Stderr)
	}
	require.NoError(t, err)
	return string(output)
}

// A newcomer copies the example into a module of their own, and it runs.
func TestTheEmbeddingExampleRuns(t *testing.T) {
	assert.Equal(t, "true 4 <nil>\n", runAlone(t, program(embedding(t))))
}

// With the option in its comment, programs share the limits on a Memcached server.
func TestTheEmbeddingExampleRunsOnMemcached(t *testing.T) {
	server := memcachedtest.Start(t)
	lines := embedding(t)
	shared := strings.Replace(lines, "counterd.New(rules)", fmt.Sprintf("counterd.New(rules, counterd.WithMemcached(%q), counterd.WithGrace(40*time.Second), counterd.WithTimeout(20*time.Second))", server.Addr), 1)
	require.NotEqual(t, lines, shared)
	text := program(shared)
	assert.Equal(t, "true 4 <nil>\n", runAlone(t, text))
	assert.Equal(t, "true 3 <nil>\n", runAlone(t, text))
}
