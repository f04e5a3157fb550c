package follow

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/filewatch"
)

// ErrTooLarge is the cause of the error of a file that is larger than a rules file may be.
var ErrTooLarge = fmt.Errorf("a file is larger than %d bytes", events.MaxRulesFile)

// Files follows files with secrets that go together, such as a certificate and its key. If a
// version is faulty, or the files do not suit each other yet, the version in force stays.
type Files struct {
	*watcher
	what string // the files hold, for the log
	take func(contents [][]byte) (logged []any, err error)
	log  *slog.Logger

	failures atomic.Int64
	refused  atomic.Bool
	taken    []snapshot // what is in force; of the goroutine that follows
}

// Open calls take with what the files hold, and again with each new version, until Close. take
// puts it in force and returns what to log of it, or what is wrong with it. It keeps no slice of
// the contents, and is called by one goroutine at a time.
func Open(what string, paths []string, take func(contents [][]byte) (logged []any, err error), log *slog.Logger) (*Files, error) {
	f := &Files{watcher: newWatcher(), what: what, take: take, log: log}
	f.judge, f.unwatched = f.judgeFiles, f.logUnwatched
	for _, path := range paths {
		path, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		f.paths = append(f.paths, path)
	}
	found, contents := f.read()
	f.taken, f.judged = found, found
	if _, err := f.takeAll(found, contents); err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(paths, ", "), err)
	}
	f.start()
	return f, nil
}

// Failures returns how many versions of the files were refused.
func (f *Files) Failures() int64 { return f.failures.Load() }

// Refused reports whether the files hold a version that was refused.
func (f *Files) Refused() bool { return f.refused.Load() }

// judgeFiles takes a version that is new and good.
func (f *Files) judgeFiles(found []snapshot, contents [][]byte, known bool) {
	switch {
	case equal(found, f.taken):
		f.refused.Store(false)
		f.log.Info("the files hold the "+f.what+" in force", "files", f.paths)
		return
	case known && !f.asked:
		return // as faulty as before
	}
	logged, err := f.takeAll(found, contents)
	if err != nil {
		f.refuse(err)
		return
	}
	f.taken = found
	f.refused.Store(false)
	f.log.Info(f.what+" reloaded", append([]any{"files", f.paths}, logged...)...)
}

// takeAll takes a version and clears it.
func (f *Files) takeAll(found []snapshot, contents [][]byte) ([]any, error) {
	defer forget(contents)
	for i, one := range found {
		if one.err != nil {
			return nil, one.err
		}
		if len(contents[i]) > events.MaxRulesFile { // it was cut off
			return nil, ErrTooLarge
		}
	}
	return f.take(contents)
}

// refuse logs why the version in force stays.
func (f *Files) refuse(err error) {
	stay := f.what + " not reloaded, those in force stay"
	f.refused.Store(true)
	failures := f.failures.Add(1)
	faults, ok := errors.AsType[events.Faults](err)
	if !ok {
		f.log.Error(stay, "files", f.paths, "failures", failures, "error", err)
		return
	}
	f.log.Error(stay, "files", f.paths, "failures", failures, "faults", len(faults))
	for _, fault := range faults[:min(len(faults), maxFaultsLogged)] {
		f.log.Error("fault in the file", "files", f.paths, "line", fault.Line, "fault", fault.Error())
	}
}

func (f *Files) logUnwatched(err error) {
	f.log.Warn("a file cannot be watched: it is read now and then instead", "files", f.paths, "every", filewatch.Glance, "error", err)
}
