package follow

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/leaktest"
)

// Of two files that go together each state that is good is taken, also one that was there
// before, and no other; Ask has them judged again, whatever they hold.
func TestFilesThatGoTogether(t *testing.T) {
	leaktest.Check(t)
	one, two := testkit.SecretFile(t, "a"), testkit.SecretFile(t, "a")
	taken := make(chan string, 10)
	log := &testkit.Log{}
	f, err := Open("letters", []string{one, two}, func(files []File) ([]any, error) {
		if string(files[0].Data) != string(files[1].Data) {
			return nil, errors.New("they differ")
		}
		taken <- string(files[0].Data)
		return []any{"letter", string(files[0].Data)}, nil
	}, slog.New(slog.NewTextHandler(log, nil)))
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
		testkit.Await(t, soon, text, func() bool { return strings.Count(log.String(), text) == times })
	}
	next("a")
	assert.False(t, f.refused.Load())
	for i, letter := range []string{"b", "a", "c"} {
		testkit.ReplaceFile(t, one, letter)
		logged(i+1, "letters not reloaded, those in force stay")
		assert.True(t, f.refused.Load(), "until they suit each other")
		testkit.ReplaceFile(t, two, letter)
		next(letter)
		testkit.Await(t, soon, "the files are taken", func() bool { return !f.refused.Load() })
	}
	assert.EqualValues(t, 3, f.failures.Load())
	require.NoError(t, os.Remove(two))
	logged(4, "letters not reloaded, those in force stay")
	f.Ask()
	logged(5, "letters not reloaded, those in force stay")
	assert.True(t, f.refused.Load())
	testkit.ReplaceFile(t, two, "c")
	logged(1, "the letters file holds the letters in force")
	assert.False(t, f.refused.Load(), "what is in force stands in the files again")
	f.Ask()
	logged(2, "the letters file holds the letters in force")
	assert.EqualValues(t, 5, f.failures.Load())
	assert.Empty(t, taken)
}
