//go:build testall

package counterd_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

const module = "github.com/counterd/counterd"

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

// A newcomer copies the example into a module of their own, with the option in its comment: it builds with this module
// and the module cache, and programs share the limits on a Memcached server.
func TestTheEmbeddingExampleRunsOnMemcached(t *testing.T) {
	here, err := os.Getwd()
	require.NoError(t, err)
	folder, server := t.TempDir(), memcachedtest.Start(t)
	lines := exampleBody(t)
	shared := strings.Replace(lines, "counterd.New(rules)", fmt.Sprintf("counterd.New(rules, counterd.WithMemcached(%q), counterd.WithGrace(40*time.Second), counterd.WithTimeout(20*time.Second))", server.Addr), 1)
	require.NotEqual(t, lines, shared)
	mod, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	_, requirements, found := strings.Cut(string(mod), "\nrequire (")
	require.True(t, found)
	requirements, _, _ = strings.Cut(requirements, "\ntool ")
	sum, err := os.ReadFile("go.sum")
	require.NoError(t, err)
	for name, content := range map[string]string{
		"main.go": program(shared),
		"go.sum":  string(sum),
		"go.mod":  "module example.com/embedding\n\ngo 1.26.0\n\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + here + "\n\nrequire (" + requirements,
	} {
		testkit.WriteFile(t, filepath.Join(folder, name), content)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", "embedding", ".")
	build.Dir = folder
	build.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off", "GOTOOLCHAIN=local")
	output, err := build.CombinedOutput()
	require.NoError(t, err, "%s", output)
	for _, prints := range []string{"true 4 <nil>\n", "true 3 <nil>\n"} {
		output, err := exec.CommandContext(t.Context(), filepath.Join(folder, "embedding")).Output()
		require.NoError(t, err)
		assert.Equal(t, prints, string(output))
	}
}
