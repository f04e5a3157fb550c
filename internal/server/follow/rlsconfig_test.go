package follow

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/leaktest"
)

// A folder is followed: each edit, file and removal that leaves it without faults is taken, whole, and no other.
func TestRLSConfigIsFollowed(t *testing.T) {
	leaktest.Check(t)
	folder := t.TempDir()
	write := func(name, text string) { testkit.ReplaceFile(t, filepath.Join(folder, name), text) }
	log := &testkit.Log{}
	_, err := OpenRLSConfig(folder, slog.New(slog.NewTextHandler(log, nil)))
	require.ErrorContains(t, err, "has no *.yaml or *.yml file")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "a.yaml"), []byte("domain: a\ndescriptors: [{key: k, detailed_metric: true}]"), 0o600))
	r, err := OpenRLSConfig(folder, slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(t, err)
	defer r.Close()
	assert.Equal(t, 2, strings.Count(log.String(), "warning of the rls-config file"), "%s", log)
	eventually := func(domains ...string) {
		t.Helper()
		testkit.Await(t, soon, strings.Join(domains, " "), func() bool { return slices.Equal(domains, r.Config().Domains()) })
	}
	eventually("a")
	write("b.yaml", "domain: b")
	eventually("a", "b")
	assert.Len(t, r.Rules().Events, 2)
	write("b.yaml", "domain: [")
	testkit.Await(t, soon, "a refusal", r.Refused)
	log.Await(t, `fault="line 1: `+filepath.Join(folder, "b.yaml"))
	eventually("a", "b")
	require.NoError(t, os.Mkdir(filepath.Join(folder, "more"), 0o700))
	write("b.yaml", "domain: c")
	eventually("a", "c")
	assert.Contains(t, log.String(), `only *.yaml and *.yml files of the folder itself are" names=[`+filepath.Join(folder, "more")+"]")
	assert.Equal(t, 2, strings.Count(log.String(), "warning of the rls-config file"), "not again: %s", log)
	require.NoError(t, os.Rename(filepath.Join(folder, "b.yaml"), filepath.Join(folder, "c.yaml")))
	require.NoError(t, os.Remove(filepath.Join(folder, "a.yaml")))
	eventually("c")
	require.NoError(t, os.Remove(filepath.Join(folder, "c.yaml")))
	testkit.Await(t, soon, "a refusal", r.Refused)
	eventually("c")

	var none *RLSConfig
	assert.Nil(t, none.Config().Event("a"))
	assert.Zero(t, none.Rules().Longest())
}
