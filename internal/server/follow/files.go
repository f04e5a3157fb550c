// Package follow keeps what files hold in force while the files change: a rules file, and files
// with secrets that go together. It takes a version of the files once they have been the same for
// a moment, all of it or none.
package follow

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/internal/filewatch"
)

const (
	// quiet is how long files stay the same before they are read for good, so that a file
	// that is being written is not.
	quiet = 100 * time.Millisecond
	// maxWatched is how many paths may be watched together.
	maxWatched = 3
	// maxFaultsLogged bounds the lines in the log for the faults, or warnings, of one file.
	maxFaultsLogged = 1000
)

// ErrTooLarge is the cause of the error of a file that is larger than a rules file may be.
var ErrTooLarge = fmt.Errorf("a file is larger than %d bytes", rulesfile.MaxSize)

// File is what a file holds.
type File struct {
	Path string // absolute
	Data []byte
}

// Files follows files that go together, such as a certificate and its key, with a debounced
// watcher. If a version is faulty, or the files do not suit each other yet, the version in force
// stays. Its methods are safe for concurrent use.
type Files struct {
	what   string                   // the files hold, for the log
	paths  []string                 // absolute, of files or of a folder; none: there is nothing to follow
	list   func() ([]string, error) // the files at the paths
	take   func(files []File) (logged []any, err error)
	state  func() []any // of what is in force, for the log; nil: nothing
	log    *slog.Logger
	asks   chan struct{}
	cancel context.CancelFunc // nil: the files are not followed
	done   chan struct{}

	failures atomic.Int64
	refused  atomic.Bool

	// Of the goroutine that follows.
	modified time.Time  // when what is taken was modified
	inForce  []snapshot // what is in force came from them
	judged   []snapshot // the last that were judged
	pending  []snapshot // to be judged once they have been the same for a moment
	settle   *time.Timer
	settling bool // the timer is running
	asked    bool // by Ask: the answer is logged even if nothing has changed
}

// Open calls take with what the files hold, and again with each new version, until Close. take
// puts it in force and returns what to log of it, or what is wrong with it. It keeps no slice of
// the data, and is called by one goroutine at a time.
func Open(what string, paths []string, take func(files []File) (logged []any, err error), log *slog.Logger) (*Files, error) {
	return open(what, paths, nil, take, log)
}

// OpenFolder does as Open does with the files that list returns of a path: of a folder, those in it.
func OpenFolder(what, path string, list func(path string) ([]string, error), take func(files []File) (logged []any, err error), log *slog.Logger) (*Files, error) {
	return open(what, []string{path}, list, take, log)
}

func open(what string, paths []string, list func(string) ([]string, error), take func([]File) ([]any, error), log *slog.Logger) (*Files, error) {
	absolute := make([]string, len(paths))
	for i, path := range paths {
		var err error
		if absolute[i], err = filepath.Abs(path); err != nil {
			return nil, err
		}
	}
	f := newFiles(what, absolute, take, log)
	if list != nil {
		f.list = func() ([]string, error) { return list(absolute[0]) }
	}
	found, files := f.read()
	defer forget(files)
	f.inForce, f.judged = found, found
	if _, err := f.takeAll(found, files); err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(paths, ", "), err)
	}
	f.start()
	return f, nil
}

func newFiles(what string, paths []string, take func([]File) ([]any, error), log *slog.Logger) *Files {
	f := &Files{
		what: what, paths: paths, take: take, log: log,
		list: func() ([]string, error) { return paths, nil },
		asks: make(chan struct{}, 1), done: make(chan struct{}), settle: time.NewTimer(quiet),
	}
	f.settle.Stop()
	if f.Follows() {
		f.log = log.With("file", strings.Join(paths, ","))
	}
	return f
}

// start follows the files until Close.
func (f *Files) start() {
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	go f.run(ctx)
}

// Close ends the following and joins its goroutine. What is in force stays.
func (f *Files) Close() {
	if f.cancel == nil {
		return
	}
	f.cancel()
	<-f.done
}

// Ask has the files read again, and an answer logged. It does not wait.
func (f *Files) Ask() {
	select {
	case f.asks <- struct{}{}:
	default: // it is asked already
	}
}

// Follows reports whether there is a file to follow.
func (f *Files) Follows() bool { return len(f.paths) > 0 }

// Failures returns how many versions of the files were refused.
func (f *Files) Failures() int64 { return f.failures.Load() }

// Refused reports whether the files hold a version that was refused.
func (f *Files) Refused() bool { return f.refused.Load() }

func (f *Files) run(ctx context.Context) {
	defer close(f.done)
	var changes [maxWatched]<-chan struct{}
	for i, path := range f.paths {
		watch := filewatch.New(path, func(err error) {
			f.log.Warn("the "+f.what+" file cannot be watched: it is read now and then instead", "every", filewatch.Glance, "error", err)
		})
		defer watch.Close()
		changes[i] = watch.Changes()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.asks:
			f.asked = true
			f.look()
		case <-changes[0]:
			f.look()
		case <-changes[1]:
			f.look()
		case <-changes[2]:
			f.look()
		case <-f.settle.C:
			f.settled()
		}
	}
}

// look has the files judged, once they have been quiet, if they differ from what was judged last.
func (f *Files) look() {
	if !f.settling {
		var files []File
		f.pending, files = f.read()
		forget(files)
		if !f.asked && equal(f.pending, f.judged) {
			return
		}
	}
	f.settling = true
	f.settle.Reset(quiet)
}

// settled has the files judged if they are still the same.
func (f *Files) settled() {
	found, files := f.read()
	if !equal(found, f.pending) {
		forget(files)
		f.pending = found
		f.settle.Reset(quiet)
		return
	}
	f.judge(found, files)
	f.judged, f.settling, f.asked = found, false, false
}

// judge puts in force what is new and good, and clears the data.
func (f *Files) judge(found []snapshot, files []File) {
	defer forget(files)
	known := equal(found, f.judged)
	switch {
	case equal(found, f.inForce):
		f.refused.Store(false)
		level := slog.LevelDebug
		if f.asked || !known {
			level = slog.LevelInfo
		}
		f.log.Log(context.Background(), level, "the "+f.what+" file holds the "+f.what+" in force", f.stateInForce()...)
	case known && !f.asked:
		f.log.Debug("the " + f.what + " file is as broken as it was")
	default:
		logged, err := f.takeAll(found, files)
		if err != nil {
			f.refuse(err)
			return
		}
		f.inForce = found
		f.refused.Store(false)
		f.log.Info(f.what+" reloaded", logged...)
	}
}

// takeAll takes a version that could be read whole.
func (f *Files) takeAll(found []snapshot, files []File) ([]any, error) {
	for i, one := range found {
		if one.err != nil {
			return nil, one.err
		}
		if len(files[i].Data) > rulesfile.MaxSize { // it was cut off
			return nil, ErrTooLarge
		}
		f.modified = one.modified
	}
	return f.take(files)
}

// refuse logs why the version in force stays.
func (f *Files) refuse(err error) {
	stay := f.what + " not reloaded, those in force stay"
	f.refused.Store(true)
	state := append(f.stateInForce(), "failures", f.failures.Add(1))
	faults, ok := errors.AsType[events.Faults](err)
	if !ok {
		f.log.Error(stay, append(state, "error", err)...)
		return
	}
	f.log.Error(stay, append(state, "faults", len(faults))...)
	for _, fault := range faults[:min(len(faults), maxFaultsLogged)] {
		f.log.Error("fault in the "+f.what+" file", "line", fault.Line, "fault", fault.Error())
	}
	if len(faults) > maxFaultsLogged {
		f.log.Error("more faults in the "+f.what+" file", "faults", len(faults)-maxFaultsLogged)
	}
}

func (f *Files) stateInForce() []any {
	if f.state == nil {
		return nil
	}
	return f.state()
}

func (f *Files) read() (found []snapshot, files []File) {
	paths, err := f.list()
	if err != nil {
		return []snapshot{{err: err}}, []File{{}}
	}
	for _, path := range paths {
		one, data := takeSnapshot(path)
		found, files = append(found, one), append(files, File{path, data})
	}
	return found, files
}

// forget leaves no secret in memory that is free.
func forget(files []File) {
	for _, file := range files {
		clear(file.Data)
	}
}

// snapshot is what a file held at one moment: its sum, since the content may be secret.
type snapshot struct {
	path     string
	sum      [sha256.Size]byte
	err      error // why it could not be read
	modified time.Time
}

// takeSnapshot reads a file. The caller clears the content if it may be secret.
func takeSnapshot(path string) (snapshot, []byte) {
	var modified time.Time
	if info, err := os.Stat(path); err == nil { // before the content: stale content is never newer
		modified = info.ModTime()
	}
	// The reader of the content reports a file that is one byte too large.
	data, err := filewatch.Read(path, rulesfile.MaxSize+1)
	return snapshot{path, sha256.Sum256(data), err, modified}, data
}

func (s snapshot) equal(other snapshot) bool {
	if s.err != nil || other.err != nil {
		return s.err != nil && other.err != nil && s.err.Error() == other.err.Error()
	}
	return s.path == other.path && s.sum == other.sum
}

func equal(a, b []snapshot) bool { return slices.EqualFunc(a, b, snapshot.equal) }
