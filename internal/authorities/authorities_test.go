package authorities

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

func TestRead(t *testing.T) {
	authority := memcachedtest.NewAuthority(t)
	pool, err := Read(authority.File)
	require.NoError(t, err)
	require.True(t, pool.Equal(authority.Pool))
	_, err = Read(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	rubbish := filepath.Join(t.TempDir(), "rubbish")
	require.NoError(t, os.WriteFile(rubbish, []byte("no PEM"), 0o600))
	_, err = Read(rubbish)
	require.ErrorContains(t, err, rubbish+" holds no certificate in PEM")
}
