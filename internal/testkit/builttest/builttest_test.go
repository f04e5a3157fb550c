package builttest_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/builttest"
)

var counterd string

func TestMain(m *testing.M) { builttest.Main(m, func(path string) { counterd = path }) }

func TestItIsTheProgram(t *testing.T) {
	out, err := exec.Command(counterd, "-h").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "counterd")
	_, err = builttest.Counterd("/dev/null")
	require.ErrorContains(t, err, "building counterd")
}
