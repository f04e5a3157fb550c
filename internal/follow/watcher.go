// Package follow keeps what files hold in force while the files change: a rules file, and files
// with secrets that go together. It takes a version of the files once they have been the same for
// a moment, all of it or none.
package follow

import (
	"context"
	"crypto/sha256"
	"slices"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/filewatch"
)

const (
	// quiet is how long files stay the same before they are read for good, so that a file
	// that is being written is not.
	quiet = 100 * time.Millisecond
	// maxFiles is how many files may go together.
	maxFiles = 3
	// maxFaultsLogged bounds the lines in the log for the faults, or warnings, of one file.
	maxFaultsLogged = 1000
)

// watcher is a debounced watcher of files that go together: when they have changed, and stay the
// same for a moment, it has them judged.
type watcher struct {
	paths []string // absolute; none: there is nothing to follow
	// judge gets what the files hold. It is called by one goroutine at a time, with known set
	// where it has judged the same before, and keeps nothing of the contents.
	judge     func(found []snapshot, contents [][]byte, known bool)
	unwatched func(error) // gets the reason why changes may be seen late

	asks   chan struct{}
	cancel context.CancelFunc // nil: the watcher is not started
	done   chan struct{}

	// Of the goroutine that follows.
	judged   []snapshot // the last that were judged
	pending  []snapshot // to be judged once they have been the same for a moment
	settle   *time.Timer
	settling bool // the timer is running
	asked    bool // by Ask: the answer is logged even if nothing has changed
}

func newWatcher() *watcher {
	w := &watcher{asks: make(chan struct{}, 1), done: make(chan struct{}), settle: time.NewTimer(quiet)}
	w.settle.Stop()
	return w
}

// start follows the files until Close.
func (w *watcher) start() {
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	go w.run(ctx)
}

// Ask has the files read again, and an answer logged. It does not wait.
func (w *watcher) Ask() {
	select {
	case w.asks <- struct{}{}:
	default: // it is asked already
	}
}

// Close ends the following and joins its goroutine. What is in force stays.
func (w *watcher) Close() {
	if w.cancel == nil {
		return
	}
	w.cancel()
	<-w.done
}

// Follows reports whether there is a file to follow.
func (w *watcher) Follows() bool { return len(w.paths) > 0 }

func (w *watcher) run(ctx context.Context) {
	defer close(w.done)
	var changes [maxFiles]<-chan struct{}
	for i, path := range w.paths {
		watch := filewatch.New(path, w.unwatched)
		defer watch.Close()
		changes[i] = watch.Changes()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.asks:
			w.asked = true
			w.look()
		case <-changes[0]:
			w.look()
		case <-changes[1]:
			w.look()
		case <-changes[2]:
			w.look()
		case <-w.settle.C:
			w.settled()
		}
	}
}

// look has the files judged, once they have been quiet, if they differ from what was judged last.
func (w *watcher) look() {
	if !w.settling {
		var contents [][]byte
		w.pending, contents = w.read()
		forget(contents)
		if !w.asked && equal(w.pending, w.judged) {
			return
		}
	}
	w.settling = true
	w.settle.Reset(quiet)
}

// settled has the files judged if they are still the same.
func (w *watcher) settled() {
	found, contents := w.read()
	defer forget(contents)
	if !equal(found, w.pending) {
		w.pending = found
		w.settle.Reset(quiet)
		return
	}
	known := equal(found, w.judged)
	w.judged = found
	w.judge(found, contents, known)
	w.settling, w.asked = false, false
}

func (w *watcher) read() (list []snapshot, contents [][]byte) {
	for _, path := range w.paths {
		one, data := takeSnapshot(path)
		list, contents = append(list, one), append(contents, data)
	}
	return list, contents
}

// forget leaves no secret in memory that is free.
func forget(contents [][]byte) {
	for _, data := range contents {
		clear(data)
	}
}

// snapshot is what a file held at one moment: its sum, since the content may be secret.
type snapshot struct {
	sum [sha256.Size]byte
	err error // why it could not be read
}

// takeSnapshot reads a file. The caller clears the content if it may be secret.
func takeSnapshot(path string) (snapshot, []byte) {
	// The parser reports a file that is one byte too large.
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
