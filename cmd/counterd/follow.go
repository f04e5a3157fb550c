package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/filewatch"
)

// maxFollowed is how many files may go together.
const maxFollowed = 3

var errTooLarge = fmt.Errorf("a file is larger than %d bytes", events.MaxRulesFile)

// follower follows files with secrets that go together, such as a certificate and its
// key. When they have changed, and are at rest, what they hold is taken, all of it or
// none: where it is faulty, or they do not suit each other yet, what is in force stays.
type follower struct {
	what  string // the files hold, for the log
	paths []string
	take  func(contents [][]byte) (said []any, err error)
	log   *slog.Logger

	failures atomic.Int64 // versions of the files that could not be taken
	refused  atomic.Bool  // what stands in the files could not be taken
	hangup   chan os.Signal
	cancel   context.CancelFunc
	done     chan struct{}

	// Of the goroutine that follows.
	taken    []snapshot // what is in force
	judged   []snapshot // what was last found to be good or faulty
	seen     []snapshot // what is to be judged once it has been the same for a while
	settle   *time.Timer
	settling bool // the timer is running
	asked    bool // by SIGHUP: it wants an answer even if nothing has changed
}

// follow has take take what the files hold, and from then on whatever they come to hold,
// until Close. take puts it in force and returns what to log of it, or what is wrong with
// it; it keeps no slice of it. It is called by one goroutine at a time.
func follow(what string, paths []string, take func([][]byte) ([]any, error), log *slog.Logger) (*follower, error) {
	f := &follower{what: what, take: take, log: log, hangup: make(chan os.Signal, 1), done: make(chan struct{})}
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
	signal.Notify(f.hangup, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	go f.run(ctx)
	return f, nil
}

// Close ends the following. What is in force stays.
func (f *follower) Close() {
	f.cancel()
	<-f.done
	signal.Stop(f.hangup)
}

func (f *follower) run(ctx context.Context) {
	defer close(f.done)
	f.settle = time.NewTimer(quiet)
	f.settle.Stop()
	var changes [maxFollowed]<-chan struct{}
	for i, path := range f.paths {
		watch := filewatch.New(path, f.unwatched)
		defer watch.Close()
		changes[i] = watch.Changes()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.hangup:
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

// look has the files judged, once they have been quiet, if they are not what was judged
// last.
func (f *follower) look() {
	if !f.settling {
		var contents [][]byte
		f.seen, contents = f.read()
		forget(contents)
		if !f.asked && equal(f.seen, f.judged) {
			return
		}
	}
	f.settling = true
	f.settle.Reset(quiet)
}

// settled judges the files if they still are as they were last seen.
func (f *follower) settled() {
	found, contents := f.read()
	defer forget(contents)
	if !equal(found, f.seen) {
		f.seen = found
		f.settle.Reset(quiet)
		return
	}
	f.judge(found, contents)
	f.settling, f.asked = false, false
}

// judge takes what was found, if it is new and good.
func (f *follower) judge(found []snapshot, contents [][]byte) {
	known := equal(found, f.judged)
	f.judged = found
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

// unwatched says why changes of a file may be seen late.
func (f *follower) unwatched(err error) {
	f.log.Warn("a file cannot be watched: it is looked at now and then", "files", f.paths, "every", filewatch.Glance, "error", err)
}

func (f *follower) read() (list []snapshot, contents [][]byte) {
	for _, path := range f.paths {
		one, data := takeSnapshot(path)
		list, contents = append(list, one), append(contents, data)
	}
	return list, contents
}

// forget leaves nothing of secrets in memory that is free.
func forget(contents [][]byte) {
	for _, data := range contents {
		clear(data)
	}
}

func equal(a, b []snapshot) bool { return slices.EqualFunc(a, b, snapshot.equal) }
