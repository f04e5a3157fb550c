// Package filewatch tells when a file, or a folder's files, may have changed: edited in place,
// replaced, or behind a link that now leads elsewhere; and reads what can be read again then.
package filewatch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Glance is how often a file is to be looked at without being told of a change:
// network file systems tell of none, nor is one told of in the links to a folder on
// the way to the file.
const Glance = 5 * time.Second

// Watch watches one file, or the files in one folder, until Close.
type Watch struct {
	path    string // absolute
	report  func(error)
	changes chan struct{}
	cancel  context.CancelFunc
	done    chan struct{}

	// Of the goroutine that watches.
	watcher *fsnotify.Watcher // nil: there is none to be had
	places  places
	failed  string // why the file could not be watched when last tried
}

// New watches what is at the path, whether or not it is there yet. If it cannot be
// watched it is read now and then, and report gets the reason, from the goroutine of the
// Watch.
func New(path string, report func(error)) *Watch { return newWatch(path, report, Glance) }

// newWatch looks at the file at least once per glance.
func newWatch(path string, report func(error), glance time.Duration) *Watch {
	w := &Watch{path: path, report: report, changes: make(chan struct{}, 1), done: make(chan struct{})}
	if absolute, err := filepath.Abs(path); err == nil {
		w.path = absolute
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	go w.run(ctx, glance)
	return w
}

// Changes has something to receive once the watch has begun, when the file may have
// changed since that was last received, and at every glance.
func (w *Watch) Changes() <-chan struct{} { return w.changes }

// Close ends the watch.
func (w *Watch) Close() {
	w.cancel()
	<-w.done
}

func (w *Watch) run(ctx context.Context, glance time.Duration) {
	defer close(w.done)
	var changes chan fsnotify.Event
	var faults chan error
	if watcher, err := fsnotify.NewWatcher(); err != nil {
		w.report(err)
	} else {
		w.watcher, changes, faults = watcher, watcher.Events, watcher.Errors
		defer watcher.Close()
	}
	glances := time.NewTicker(glance)
	defer glances.Stop()
	// It may have changed since the caller has read it.
	w.look()
	for {
		select {
		case <-ctx.Done():
			return
		case change := <-changes:
			if w.places.concern(w.path, change.Name) {
				w.look()
			}
		case err := <-faults:
			w.report(err)
			w.tell()
		case <-glances.C:
			w.look()
		}
	}
}

// look finds out where the file is by now, and tells.
func (w *Watch) look() {
	w.renew()
	w.tell()
}

func (w *Watch) tell() {
	select {
	case w.changes <- struct{}{}:
	default: // a change is pending already
	}
}

// renew sees to it that the folders in which the file can be replaced are watched:
// those of the file and of the link to it.
func (w *Watch) renew() {
	w.places = placesOf(w.path)
	if w.watcher == nil {
		return
	}
	for _, folder := range w.watcher.WatchList() {
		if !slices.Contains(w.places.folders(), folder) {
			// One that is gone is no longer watched anyway.
			_ = w.watcher.Remove(folder)
		}
	}
	var failed error
	for _, folder := range w.places.folders() {
		failed = errors.Join(failed, w.watcher.Add(folder))
	}
	w.unwatched(failed)
}

// unwatched says once why the file is not watched; nil: it is.
func (w *Watch) unwatched(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != w.failed {
		w.report(err)
	}
	w.failed = text
}

// places are where a file is without the links that lead to its folder.
type places struct {
	link   string // where the file, or a link to it, is; empty: its folder is gone
	file   string // what it leads to in the end; empty: nowhere
	folder bool   // that is a folder
}

func placesOf(path string) places {
	var p places
	if folder, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		p.link = filepath.Join(folder, filepath.Base(path))
	}
	if file, err := filepath.EvalSymlinks(path); err == nil {
		p.file = file
		info, err := os.Stat(file)
		p.folder = err == nil && info.IsDir()
	}
	return p
}

// folders returns the folders of the places, and the folder that is watched.
func (p places) folders() []string {
	var folders []string
	if p.folder {
		folders = append(folders, p.file)
	}
	for _, place := range []string{p.link, p.file} {
		if place != "" && !slices.Contains(folders, filepath.Dir(place)) {
			folders = append(folders, filepath.Dir(place))
		}
	}
	return folders
}

// concern reports whether a change there may have changed what is at the path: it
// happened to it, or something now leads elsewhere.
func (p places) concern(path, changed string) bool {
	return changed == p.link || changed == p.file || p.folder && filepath.Dir(changed) == p.file || p != placesOf(path)
}
