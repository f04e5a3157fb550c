package filewatch

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(path, []byte("abc"), 0o600))
	for most, want := range map[int64]string{2: "ab", 3: "abc", 4: "abc"} {
		data, err := Read(path, most)
		require.NoError(t, err)
		assert.Equal(t, want, string(data))
	}
	_, err := Read(filepath.Dir(path), 1)
	assert.ErrorIs(t, err, ErrNotRegular)
	_, err = Read(path+"~", 1)
	assert.ErrorIs(t, err, fs.ErrNotExist)
}
