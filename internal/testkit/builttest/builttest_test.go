package builttest_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/builttest"
)

var counterd string

func TestMain(m *testing.M) { builttest.Main(m, func(path string) { counterd = path }) }

func TestTheyAreThePrograms(t *testing.T) {
	out, err := exec.Command(counterd, "-h").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "counterd")
	loadtest, err := builttest.Loadtest(t.TempDir())
	require.NoError(t, err)
	out, err = exec.Command(loadtest, "-h").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "loadtest run")
	t.Setenv(builttest.Variable, filepath.Dir(counterd))
	built, err := builttest.Counterd("/dev/null")
	require.NoError(t, err)
	require.Equal(t, counterd, built)
	t.Setenv(builttest.Variable, "")
	_, err = builttest.Counterd("/dev/null")
	require.ErrorContains(t, err, "building counterd")
}
