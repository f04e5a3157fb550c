package testkit

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// WriteFile writes a file that only its owner reads.
func WriteFile(tb testing.TB, path, text string) {
	tb.Helper()
	require.NoError(tb, os.WriteFile(path, []byte(text), 0o600))
}

// ReplaceFile puts a new file in the place of the old one, as most editors do.
func ReplaceFile(tb testing.TB, path, text string) {
	tb.Helper()
	WriteFile(tb, path+"~", text)
	require.NoError(tb, os.Rename(path+"~", path))
}

// Link makes a symbolic link lead elsewhere, in one step.
func Link(tb testing.TB, link, to string) {
	tb.Helper()
	require.NoError(tb, os.Symlink(to, link+"~"))
	require.NoError(tb, os.Rename(link+"~", link))
}

// SecretFile returns a file of its own with that text.
func SecretFile(tb testing.TB, text string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "secret")
	WriteFile(tb, path, text)
	return path
}
