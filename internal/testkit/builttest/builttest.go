// Package builttest builds the programs for the tests that run them as processes.
package builttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// Counterd builds the program into the folder, and returns its path.
func Counterd(folder string) (string, error) {
	path := filepath.Join(folder, "counterd")
	out, err := exec.Command("go", "build", "-o", path, "github.com/counterd/counterd/cmd/counterd").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building counterd: %w: %s", err, out)
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
