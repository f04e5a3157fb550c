package server

import (
	"bytes"
	"crypto/rand"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/internal/server/follow"
	"github.com/counterd/counterd/internal/testkit"
)

// Of a file that is too large what is left would be taken for all there is, half a token
// among it.
func TestAFollowedFileThatIsTooLarge(t *testing.T) {
	path := testkit.SecretFile(t, strings.Repeat("#", rulesfile.MaxSize-20)+"\nedge all "+"edge-token-of-the-test"+"-and-more\n")
	_, err := openTokens(path, slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, follow.ErrTooLarge)
}

// Of a file of tokens only sums are left in memory, also of one that was refused or has been
// replaced. What is looked for is kept in another form, so as not to be found in the test.
func TestTokensAreNotKeptInMemory(t *testing.T) {
	path := testkit.SecretFile(t, "")
	hidden := make([]byte, 32)
	_, _ = rand.Read(hidden)
	for i, b := range hidden {
		hidden[i] = ^('a' + b%26)
	}
	fill := func(before string) {
		text := []byte(before)
		for _, b := range hidden {
			text = append(text, ^b)
		}
		require.NoError(t, os.WriteFile(path, append(text, '\n'), 0o600))
		clear(text[:cap(text)])
	}
	log := &testkit.Log{}
	fill("edge all ")
	f, err := openTokens(path, slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(t, err)
	defer f.Close()
	requireForgotten(t, hidden)
	fill("# another version\nedge all ")
	log.Await(t, "tokens reloaded")
	requireForgotten(t, hidden)
	fill("of no class ")
	log.Await(t, "tokens not reloaded")
	requireForgotten(t, hidden)
	runtime.KeepAlive(f)
}

// requireForgotten looks through all memory that is in use for the complement of what is
// hidden.
func requireForgotten(t *testing.T, hidden []byte) {
	t.Helper()
	dump, err := os.Create(filepath.Join(t.TempDir(), "dump"))
	require.NoError(t, err)
	defer dump.Close()
	runtime.GC()
	runtime.GC()
	debug.WriteHeapDump(dump.Fd())
	found, err := os.ReadFile(dump.Name())
	require.NoError(t, err)
	require.NotEmpty(t, found)
	for i := range found {
		found[i] = ^found[i]
	}
	at := bytes.Index(found, hidden)
	clear(found)
	require.Negative(t, at, "the token is in memory")
}
