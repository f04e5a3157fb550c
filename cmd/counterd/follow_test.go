package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/leaktest"
)

// Of two files that go together each state that is good is taken, also one that was there
// before, and no other; SIGHUP has them judged again, whatever they hold.
func TestFilesThatGoTogether(t *testing.T) {
	leaktest.Check(t)
	one, two := secretFile(t, "a"), secretFile(t, "a")
	taken := make(chan string, 10)
	log := &lockedBuffer{}
	f, err := follow("letters", []string{one, two}, func(contents [][]byte) ([]any, error) {
		if string(contents[0]) != string(contents[1]) {
			return nil, errors.New("they differ")
		}
		taken <- string(contents[0])
		return []any{"letter", string(contents[0])}, nil
	}, newLog("text", log))
	require.NoError(t, err)
	defer f.Close()
	next := func(want string) {
		t.Helper()
		select {
		case letter := <-taken:
			require.Equal(t, want, letter)
		case <-time.After(soon):
			require.Fail(t, "not taken", "%s: %s", want, log)
		}
	}
	logged := func(times int, text string) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Count(log.String(), text) == times }, soon, time.Millisecond, "%s: %s", text, log)
	}
	next("a")
	assert.False(t, f.refused.Load())
	for i, letter := range []string{"b", "a", "c"} {
		replace(t, one, letter)
		logged(i+1, "letters not reloaded, those in force stay")
		assert.True(t, f.refused.Load(), "until they suit each other")
		replace(t, two, letter)
		next(letter)
		require.Eventually(t, func() bool { return !f.refused.Load() }, soon, time.Millisecond)
	}
	assert.EqualValues(t, 3, f.failures.Load())
	require.NoError(t, os.Remove(two))
	logged(4, "letters not reloaded, those in force stay")
	f.hangup <- syscall.SIGHUP
	logged(5, "letters not reloaded, those in force stay")
	assert.True(t, f.refused.Load())
	replace(t, two, "c")
	logged(1, "the files hold the letters in force")
	assert.False(t, f.refused.Load(), "what is in force stands in the files again")
	f.hangup <- syscall.SIGHUP
	logged(2, "the files hold the letters in force")
	assert.EqualValues(t, 5, f.failures.Load())
	assert.Empty(t, taken)
}

// Of a file that is too large what is left would be taken for all there is, half a token
// among it.
func TestAFollowedFileThatIsTooLarge(t *testing.T) {
	path := secretFile(t, strings.Repeat("#", events.MaxRulesFile-20)+"\nedge all "+edgeToken+"-and-more\n")
	_, err := openTokens(path, slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, errTooLarge)
}

// Of a file of tokens only sums are left in memory, also of one that was refused or has been
// replaced. What is looked for is kept in another form, so as not to be found in the test.
func TestTokensAreNotKeptInMemory(t *testing.T) {
	path := secretFile(t, "")
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
	log := &lockedBuffer{}
	fill("edge all ")
	f, err := openTokens(path, newLog("text", log))
	require.NoError(t, err)
	defer f.Close()
	requireForgotten(t, hidden)
	fill("# another version\nedge all ")
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "tokens reloaded") }, soon, time.Millisecond)
	requireForgotten(t, hidden)
	fill("of no class ")
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "tokens not reloaded") }, soon, time.Millisecond)
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
