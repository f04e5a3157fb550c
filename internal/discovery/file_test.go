package discovery

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
)

func TestAFileOfServers(t *testing.T) {
	for text, want := range map[string][]string{
		"a:1":                                   {"a:1"},
		"b:1\na:1\n":                            {"b:1", "a:1"},
		"a:1, b:1 ,\n,\nc:1":                    {"a:1", "b:1", "c:1"},
		"# all of them\r\na:1\r\n":              {"a:1"},
		"\n\n \t\na:1 # the first\n#b:1\n,#b:1": {"a:1"},
		"/run/#1/s,./s":                         {"/run/#1/s", "./s"},
		"[::1]:11211":                           {"[::1]:11211"},
	} {
		servers, err := parseFile([]byte(text))
		require.NoError(t, err, "%q", text)
		assert.Equal(t, want, servers, "%q", text)
	}
	for text, want := range map[string]string{
		"":             "no server is named",
		" \n# a:1\n,,": "no server is named",
		"a:1\n\nb":     "line 3: b is neither host:port nor the path of a socket",
		"a:1\nb:1,a:1": "line 2: a:1 is named twice, first in line 1",
		"a:1 b:1":      "line 1: a:1 b:1 is neither",
		"a\nb\na:1":    "line 1: a is neither host:port nor the path of a socket\nline 2: b is",
		"- a:1":        "line 1: - a:1 is neither",
		"\ufeffa:1":    "line 1: ",
		"a:1\x00":      "line 1: ",
	} {
		_, err := parseFile([]byte(text))
		assert.ErrorContains(t, err, want, "%q", text)
	}
	_, err := parseFile(bytes.Repeat([]byte("x\n"), 1000))
	assert.ErrorContains(t, err, "and 990 faults more")
	assert.Equal(t, maxFaults, strings.Count(err.Error(), "\n"))
}

// What is taken can be written again in either way, and is then the same list.
func FuzzFile(f *testing.F) {
	for _, text := range []string{"a:1", "a:1,b:1\n# c\n/run/s", "[::1]:1 # x\r\n", ",#/x", "\u00a0#/x", "a\n", "/a #b", "dns:1,aws:2"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		servers, err := parseFile(data)
		if err != nil {
			require.Nil(t, servers)
			return
		}
		require.NotEmpty(t, servers)
		for _, between := range []string{"\n", ",", " # and\r\n"} {
			again, err := parseFile([]byte(strings.Join(servers, between)))
			require.NoError(t, err, "%q", servers)
			require.Equal(t, servers, again)
		}
		for _, name := range servers {
			require.NoError(t, CheckServer(name))
			require.NotContains(t, name, ",")
		}
		_, err = parseFile(append(data, "\n"+servers[0]...))
		require.ErrorContains(t, err, "named twice")
	})
}

func TestWhatIsNoFileOfServers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "servers")
	fails := func(want string) {
		t.Helper()
		_, err := List(t.Context(), File{path})
		require.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, path)
	}
	fails("no such file")
	testkit.WriteFile(t, path, "")
	fails("no server is named")
	testkit.WriteFile(t, path, "a:1\n"+strings.Repeat("#", maxFile))
	fails("more than 65536 bytes")
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Mkdir(path, 0o700))
	fails("not a regular file")
	require.NoError(t, os.Remove(path))
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	fails("not a regular file")
}

// Half of a list is a list too, and is not taken.
func TestAFileThatIsBeingWrittenIsNotTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "servers")
	testkit.WriteFile(t, path, "a:1")
	bubble.Test(t, func(t *testing.T) {
		var writing sync.WaitGroup
		defer writing.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*quiet)
		defer cancel()
		writing.Go(func() {
			time.Sleep(quiet / 20) // never at the moment at which it is read
			for n := 0; ctx.Err() == nil; n++ {
				time.Sleep(quiet / 10)
				assert.NoError(t, os.WriteFile(path, []byte(strings.Repeat("#", n%7)+"\na:1"), 0o600))
			}
		})
		_, err := List(ctx, File{path})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "while it changed")
		writing.Wait()
		testkit.WriteFile(t, path, "a:1,b:1")
		servers, err := List(t.Context(), File{path})
		require.NoError(t, err)
		assert.Equal(t, []string{"a:1", "b:1"}, servers)
	})
}

// told is what a follower tells.
type told struct {
	changes  chan Change
	failures chan error
	same     chan []string
}

// following follows a file for the test, without the questions of its interval.
func following(t *testing.T, path string) (*Follower, told) {
	t.Helper()
	servers, err := List(t.Context(), File{path})
	require.NoError(t, err)
	to := told{make(chan Change, 100), make(chan error, 100), make(chan []string, 100)}
	f := Follow(Config{
		Source: File{path}, Servers: servers, Interval: time.Hour,
		Changed:   func(_ context.Context, change Change) error { to.changes <- change; return nil },
		Unchanged: func(servers []string) { to.same <- servers },
		Report:    func(err error) { to.failures <- err },
	})
	t.Cleanup(f.Close)
	return f, to
}

func receive[T any](t *testing.T, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(soon):
		require.FailNow(t, "nothing is told")
	}
	return value
}

func TestAFileIsFollowed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "servers")
	testkit.WriteFile(t, path, "n:1")
	_, to := following(t, path)
	before := "n:1"
	follows := func(now string, change func(text string)) {
		t.Helper()
		change(now)
		assert.Equal(t, Change{Servers: []string{now}, Added: []string{now}, Removed: []string{before}}, receive(t, to.changes))
		before = now
	}
	follows("n:2", func(text string) { testkit.WriteFile(t, path, text) })
	follows("n:3", func(text string) { testkit.ReplaceFile(t, path, text) })
	follows("n:4", func(text string) {
		require.NoError(t, os.Remove(path))
		testkit.WriteFile(t, path, text)
	})
	// The way of Kubernetes: the file is a link through ..data, and that is swapped.
	for i, now := range []string{"n:5", "n:6", "n:7"} {
		follows(now, func(text string) {
			version := filepath.Join(dir, "..v"+now[2:])
			require.NoError(t, os.Mkdir(version, 0o700))
			testkit.WriteFile(t, filepath.Join(version, "servers"), text)
			testkit.Link(t, filepath.Join(dir, "..data"), filepath.Base(version))
			if i == 0 {
				testkit.Link(t, path, filepath.Join("..data", "servers"))
			}
		})
	}
	assert.Empty(t, to.changes)
}
