package filewatch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon bounds the waits for what has to happen.
const soon = 30 * time.Second

func Example() {
	folder, _ := os.MkdirTemp("", "")
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "settings")
	watch := New(path, func(err error) { fmt.Println("only looked at now and then:", err) })
	defer watch.Close()
	<-watch.Changes() // watched from now on
	os.WriteFile(path, []byte("a = 1"), 0o600)
	<-watch.Changes()
	text, _ := os.ReadFile(path)
	fmt.Printf("%s\n", text)
	// Output: a = 1
}

func lead(t *testing.T, link, to string) {
	t.Helper()
	require.NoError(t, os.Symlink(to, link+"~"))
	require.NoError(t, os.Rename(link+"~", link))
}

// unglancing watches without the glances, so that each change comes from the system.
func unglancing(t *testing.T, path string) *Watch {
	t.Helper()
	w := &Watch{path: path, report: func(err error) { assert.NoError(t, err) }, changes: make(chan struct{}, 1)}
	var err error
	w.watcher, err = fsnotify.NewWatcher()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.watcher.Close()) })
	w.renew()
	return w
}

// told waits for a change that concerns the file.
func (w *Watch) told(t *testing.T) {
	t.Helper()
	late := time.After(soon)
	for {
		select {
		case change := <-w.watcher.Events:
			if w.places.concern(w.path, change.Name) {
				w.renew()
				return
			}
		case <-late:
			require.FailNow(t, "nothing is told of the change")
		}
	}
}

func TestEveryWayOfAChangeIsTold(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	path, elsewhere := filepath.Join(dir, "f"), filepath.Join(t.TempDir(), "g")
	write := func(path string) { require.NoError(t, os.WriteFile(path, []byte("x"), 0o600)) }
	replace := func(path string) {
		write(path + "~")
		require.NoError(t, os.Rename(path+"~", path))
	}
	for _, way := range []struct {
		name   string
		before func()
		change func()
	}{
		{"appears", func() {}, func() { write(path) }},
		{"edited", func() {}, func() { write(path) }},
		{"replaced", func() {}, func() { replace(path) }},
		{"gone", func() {}, func() { os.Remove(path) }},
		{"a link elsewhere", func() { write(elsewhere) }, func() { lead(t, path, elsewhere) }},
		{"edited behind the link", func() {}, func() { write(elsewhere) }},
		{"replaced behind the link", func() {}, func() { replace(elsewhere) }},
		{"a link through a link that is swapped", func() {
			for _, version := range []string{"..1", "..2"} {
				require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o700))
				write(filepath.Join(dir, version, "f"))
			}
			lead(t, filepath.Join(dir, "..data"), "..1")
			lead(t, path, filepath.Join("..data", "f"))
		}, func() { lead(t, filepath.Join(dir, "..data"), "..2") }},
	} {
		way.before()
		w := unglancing(t, path)
		way.change()
		t.Log(way.name)
		w.told(t)
	}
}

// Of a folder each file counts, and a link to another one.
func TestAFolderIsWatched(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	path := filepath.Join(dir, "folder")
	require.NoError(t, os.Mkdir(path, 0o700))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "other"), 0o700))
	file := filepath.Join(path, "f")
	for _, change := range []func() error{
		func() error { return os.WriteFile(file, []byte("x"), 0o600) },
		func() error { return os.WriteFile(file, []byte("y"), 0o600) },
		func() error { return os.Symlink("f", filepath.Join(path, "link")) },
		func() error { return os.Remove(file) },
		func() error { return os.RemoveAll(path) },
		func() error { return os.Symlink("other", path) },
		func() error { return os.WriteFile(filepath.Join(dir, "other", "g"), nil, 0o600) },
	} {
		w := unglancing(t, path)
		require.NoError(t, change())
		w.told(t)
	}
}

// A folder on the way to the file that is a link, or comes back as another one, is
// found at a glance.
func TestAFolderThatIsSwapped(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for _, version := range []string{"v1", "v2"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o700))
	}
	current := filepath.Join(dir, "current")
	lead(t, current, "v1")
	w := unglancing(t, filepath.Join(current, "f"))
	require.Equal(t, []string{filepath.Join(dir, "v1")}, w.watcher.WatchList())
	lead(t, current, "v2")
	w.look()
	assert.Len(t, w.changes, 1)
	assert.Equal(t, []string{filepath.Join(dir, "v2")}, w.watcher.WatchList(), "from then on the new folder is watched")
}

// Changes that are not received yet are one.
func TestChangesGather(t *testing.T) {
	w := unglancing(t, filepath.Join(t.TempDir(), "f"))
	w.look()
	w.look()
	assert.Len(t, w.changes, 1)
}

func TestWhyItIsNotWatchedIsSaidOnce(t *testing.T) {
	var said []error
	w := &Watch{report: func(err error) { said = append(said, err) }}
	first, second := errors.New("first"), errors.New("second")
	for _, err := range []error{first, first, second, nil, second} {
		w.unwatched(err)
	}
	assert.Equal(t, []error{first, second, second}, said)
}

func TestAGlanceIsTold(t *testing.T) {
	w := newWatch(filepath.Join(t.TempDir(), "no folder", "f"), func(err error) { assert.NoError(t, err) }, time.Millisecond)
	defer w.Close()
	<-w.Changes()
	<-w.Changes()
}
