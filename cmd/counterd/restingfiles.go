package main

import (
	"context"
	"crypto/sha256"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/filewatch"
)

const (
	// quiet is how long files have to stay the same before they are judged, so that
	// none is that is still being written.
	quiet = 100 * time.Millisecond
	// maxFollowed is how many files may go together.
	maxFollowed = 3
)

// restingFiles follows files that go together. When they have changed, and are at rest,
// they are judged.
type restingFiles struct {
	paths []string // absolute; none: there is nothing to follow
	// judge is called by one goroutine at a time, with what was found, known where that is
	// what was judged last. It keeps nothing of the contents.
	judge     func(found []snapshot, contents [][]byte, known bool)
	unwatched func(error) // is told why changes may be seen late
	nothing   func()      // is told of SIGHUP where there is nothing to follow

	hangup chan os.Signal
	cancel context.CancelFunc
	done   chan struct{}

	// Of the goroutine that follows.
	judged   []snapshot // what was last found to be good or faulty
	seen     []snapshot // what is to be judged once it has been the same for a while
	settle   *time.Timer
	settling bool // the timer is running
	asked    bool // by SIGHUP: it wants an answer even if nothing has changed
}

func newRestingFiles() *restingFiles {
	f := &restingFiles{hangup: make(chan os.Signal, 1), done: make(chan struct{}), settle: time.NewTimer(quiet)}
	f.settle.Stop()
	return f
}

// catch catches SIGHUP from here on. What follows has to be start, or uncatch.
func (f *restingFiles) catch() { signal.Notify(f.hangup, syscall.SIGHUP) }

func (f *restingFiles) uncatch() { signal.Stop(f.hangup) }

// start follows the files until Close.
func (f *restingFiles) start() {
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	go f.run(ctx)
}

// Close ends the following. What is in force stays.
func (f *restingFiles) Close() {
	f.cancel()
	<-f.done
	f.uncatch()
}

// follows reports whether there is anything to follow.
func (f *restingFiles) follows() bool { return len(f.paths) > 0 }

func (f *restingFiles) run(ctx context.Context) {
	defer close(f.done)
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
			f.hungUp()
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

func (f *restingFiles) hungUp() {
	if !f.follows() {
		f.nothing()
		return
	}
	f.asked = true
	f.look()
}

// look has the files judged, once they have been quiet, if they are not what was judged
// last.
func (f *restingFiles) look() {
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

// settled has the files judged if they still are as they were last seen.
func (f *restingFiles) settled() {
	found, contents := f.read()
	defer forget(contents)
	if !equal(found, f.seen) {
		f.seen = found
		f.settle.Reset(quiet)
		return
	}
	known := equal(found, f.judged)
	f.judged = found
	f.judge(found, contents, known)
	f.settling, f.asked = false, false
}

func (f *restingFiles) read() (list []snapshot, contents [][]byte) {
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

// snapshot is what a file held at one moment: its sum, since what it holds may be secret.
type snapshot struct {
	sum [sha256.Size]byte
	err error // why it could not be read
}

// takeSnapshot reads a file. What is read is for whoever takes it, and for nobody to keep.
func takeSnapshot(path string) (snapshot, []byte) {
	// One byte more than allowed, for the parser to say so.
	data, err := filewatch.Read(path, events.MaxRulesFile+1)
	return snapshot{sha256.Sum256(data), err}, data
}

func (s snapshot) equal(other snapshot) bool {
	if s.err != nil || other.err != nil {
		return s.err != nil && other.err != nil && s.err.Error() == other.err.Error()
	}
	return s.sum == other.sum
}

func equal(a, b []snapshot) bool { return slices.EqualFunc(a, b, snapshot.equal) }
