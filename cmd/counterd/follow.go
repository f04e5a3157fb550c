package main

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

var errTooLarge = fmt.Errorf("a file is larger than %d bytes", events.MaxRulesFile)

// follower follows files with secrets that go together, such as a certificate and its
// key. When they have changed, and are at rest, what they hold is taken, all of it or
// none: where it is faulty, or they do not suit each other yet, what is in force stays.
type follower struct {
	*restingFiles
	what string // the files hold, for the log
	take func(contents [][]byte) (said []any, err error)
	log  *slog.Logger

	failures atomic.Int64 // versions of the files that could not be taken
	refused  atomic.Bool  // what stands in the files could not be taken
	taken    []snapshot   // what is in force; of the goroutine that follows
}

// follow has take take what the files hold, and from then on whatever they come to hold,
// until Close. take puts it in force and returns what to log of it, or what is wrong with
// it; it keeps no slice of it. It is called by one goroutine at a time.
func follow(what string, paths []string, take func([][]byte) ([]any, error), log *slog.Logger) (*follower, error) {
	f := &follower{restingFiles: newRestingFiles(), what: what, take: take, log: log}
	f.judge, f.unwatched = f.judgeFiles, f.saysUnwatched
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
	f.catch()
	f.start()
	return f, nil
}

// judgeFiles takes what was found, if it is new and good.
func (f *follower) judgeFiles(found []snapshot, contents [][]byte, known bool) {
	switch {
	case equal(found, f.taken):
		f.refused.Store(false)
		f.log.Info("the files hold the "+f.what+" in force", "files", f.paths)
		return
	case known && !f.asked:
		return // as faulty as it was
	}
	said, err := f.takeAll(found, contents)
	if err != nil {
		f.refuse(err)
		return
	}
	f.taken = found
	f.refused.Store(false)
	f.log.Info(f.what+" reloaded", append([]any{"files", f.paths}, said...)...)
}

// takeAll has what was found be taken, and forgets it: what keeps a part of it has to copy
// that.
func (f *follower) takeAll(found []snapshot, contents [][]byte) ([]any, error) {
	defer forget(contents)
	for i, one := range found {
		if one.err != nil {
			return nil, one.err
		}
		if len(contents[i]) > events.MaxRulesFile { // it was cut off
			return nil, errTooLarge
		}
	}
	return f.take(contents)
}

// refuse says why what is in force stays.
func (f *follower) refuse(err error) {
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

// saysUnwatched says why changes of a file may be seen late.
func (f *follower) saysUnwatched(err error) {
	f.log.Warn("a file cannot be watched: it is looked at now and then", "files", f.paths, "every", filewatch.Glance, "error", err)
}
