// Package mutant tests that a simulation fails on faulty source. A mutant is the source with one phrase replaced, which
// the overlay of the go command puts in place for one build.
package mutant

import (
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit"
)

// variable contains the first seed in a process that tests a mutant.
const variable = "COUNTERD_MUTANT"

// seeds is how many seeds a mutant is tested with at most.
const seeds = 8000

// Mutant is a fault of the source that a simulation must find.
type Mutant struct {
	Name     string
	File     string // path from the folder of the test
	Old, New string // Old occurs exactly once in the file
	Test     string // test of the simulation or a subtest, NAME/SUBTEST; failures print "seed N"
	Seed     uint64 // first seed to run; a seed that is known to find the fault saves time
}

// Test fails unless each phrase occurs in its file once and, if everything is tested, each simulation finds its mutant.
func Test(t *testing.T, mutants []Mutant) {
	for _, m := range mutants {
		t.Run(m.Name, func(t *testing.T) {
			path, err := filepath.Abs(m.File)
			require.NoError(t, err)
			source, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(string(source), m.Old), "%s contains %q", m.File, m.Old)
			if testkit.Thorough() {
				m.find(t, path, strings.Replace(string(source), m.Old, m.New, 1))
			}
		})
	}
}

// find builds the test with the faulty source in place of the file, and runs it until a seed fails.
func (m *Mutant) find(t *testing.T, path, faulty string) {
	file := func(name, text string) string {
		name = filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{path: file("faulty.go", faulty)}})
	require.NoError(t, err)
	binary := filepath.Join(t.TempDir(), "test")
	overlay := file("overlay.json", string(list))
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, ".")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	command := exec.CommandContext(t.Context(), binary, "-test.run", "^"+strings.ReplaceAll(m.Test, "/", "$/^")+"$")
	command.Env = append(os.Environ(), fmt.Sprintf("%s=%d", variable, m.Seed))
	out, err = command.CombinedOutput()
	require.Error(t, err, "%s does not find it in %d seeds: %s", m.Test, seeds, out)
	require.Contains(t, string(out), "--- FAIL: "+m.Test, "%s", out)
	_, seed, found := strings.Cut(string(out), "seed ")
	require.True(t, found, "no seed fails: %s", out)
	seed, _, _ = strings.Cut(seed, "\n")
	t.Logf("seed %s", seed)
}

// Tested reports whether this process tests a mutant.
func Tested() bool { return os.Getenv(variable) != "" }

// Seeds yields the seeds below n. In a process that tests a mutant it yields the mutant's seeds instead until t has
// failed.
func Seeds(t *testing.T, n uint64) iter.Seq[uint64] {
	first := uint64(0)
	if Tested() {
		var err error
		first, err = strconv.ParseUint(os.Getenv(variable), 10, 64)
		require.NoError(t, err)
		n = seeds
	}
	return func(yield func(uint64) bool) {
		for i := uint64(0); i < n && !(Tested() && t.Failed()) && yield((first+i)%n); i++ {
		}
	}
}
