// Package builttest builds the programs for the tests that run them as processes. make test builds
// them once for all packages; go test builds them once per package.
package builttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// Variable is the environment variable that names the folder with the built programs.
const Variable = "COUNTERD_BUILT"

// Counterd returns the path of the program, which it builds into the folder unless Variable is set.
func Counterd(folder string) (string, error) { return build(folder, "counterd", "cmd/counterd") }

// Loadtest does the same for loadtest, which finds a counterd in its own folder.
func Loadtest(folder string) (string, error) { return build(folder, "loadtest", "loadtest") }

func build(folder, name, from string) (string, error) {
	if built := os.Getenv(Variable); built != "" {
		path := filepath.Join(built, name)
		_, err := os.Stat(path) // go test also runs cached tests again if the file has changed
		return path, err
	}
	path := filepath.Join(folder, name)
	out, err := exec.Command("go", "build", "-o", path, "github.com/counterd/counterd/"+from).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building %s: %w: %s", name, err, out)
	}
	return path, nil
}

// Main is the TestMain of a package whose tests share a program, which is built once, and
// told to use. It finds the goroutines that they leave behind, and ends the process.
func Main(m *testing.M, use func(path string)) {
	folder, err := os.MkdirTemp("", "counterd-built-")
	if err != nil {
		panic(err)
	}
	path, err := Counterd(folder)
	if err != nil {
		panic(err)
	}
	use(path)
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		_ = os.RemoveAll(folder) // in a folder for what is temporary
		os.Exit(status)
	}))
}
