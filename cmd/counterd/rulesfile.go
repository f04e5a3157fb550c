package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/filewatch"
)

const (
	// quiet is how long a rules file has to stay the same before it is judged, so
	// that one that is still being written is not.
	quiet = 100 * time.Millisecond
	// maxFaultsLogged bounds the lines in the log for one broken file.
	maxFaultsLogged = 1000
)

// rulesFile holds the rules in force, and follows the file that they come from. A
// broken edit leaves those in force where they are.
type rulesFile struct {
	path    string // absolute
	follows bool   // false: there is no file, or one that cannot be read twice
	log     *slog.Logger
	now     func() time.Time
	rules   atomic.Pointer[events.Rules]
	reloads reloads

	hangup chan os.Signal
	cancel context.CancelFunc
	done   chan struct{}

	// Of the goroutine that follows the file.
	inForce  snapshot // what the rules in force came from
	judged   snapshot // what was last found to be good or broken
	seen     snapshot // what is to be judged once it has been the same for a while
	settle   *time.Timer
	settling bool // the timer is running
	asked    bool // by SIGHUP: it wants an answer even if nothing has changed
}

// reloads counts what became of the rules file since the start.
type reloads struct {
	generation atomic.Int64 // of the rules in force; the first is 1
	failures   atomic.Int64 // versions of the file that were broken or could not be read
	refused    atomic.Bool  // what stands in the file could not be taken
}

// openRules reads the rules file, or takes the example where none is named, and
// follows it until Close. SIGHUP is caught from here on.
func openRules(path string, log *slog.Logger) (*rulesFile, error) {
	f := &rulesFile{log: log, now: time.Now, hangup: make(chan os.Signal, 1), done: make(chan struct{})}
	signal.Notify(f.hangup, syscall.SIGHUP)
	if err := f.open(path); err != nil {
		signal.Stop(f.hangup)
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	go f.follow(ctx)
	return f, nil
}

// Close ends the following of the file. The rules in force stay readable.
func (f *rulesFile) Close() {
	f.cancel()
	<-f.done
	signal.Stop(f.hangup)
}

// Rules returns the rules in force. Nothing changes in them: who works with what one
// call returned works with one version of the file.
func (f *rulesFile) Rules() *events.Rules { return f.rules.Load() }

// remembered returns the longest for which any counter is remembered.
func (f *rulesFile) remembered() (longest time.Duration) {
	for _, event := range f.Rules().All() {
		longest = max(longest, event.Remembered())
	}
	return longest
}

// open puts the first rules in force.
func (f *rulesFile) open(path string) (err error) {
	rules := events.Example()
	if path != "" {
		if f.path, err = filepath.Abs(path); err != nil {
			return err
		}
		var data []byte
		f.inForce, data = takeSnapshot(f.path)
		f.follows = !errors.Is(f.inForce.err, filewatch.ErrNotRegular)
		if rules, err = f.first(path, data); err != nil {
			return err
		}
		if !f.follows {
			f.log.Info("the rules are not in a regular file: they are read once", "file", path)
		}
	}
	f.judged = f.inForce
	f.rules.Store(rules)
	f.reloads.generation.Store(1)
	return nil
}

// first reads the first rules.
func (f *rulesFile) first(path string, data []byte) (*events.Rules, error) {
	if !f.follows || f.inForce.err != nil {
		return events.ReadRules(path)
	}
	rules, err := events.ParseRules(data)
	if err != nil {
		return nil, fmt.Errorf("%s:\n%w", path, err)
	}
	return rules, nil
}

// follow judges each new version of the file until the context ends.
func (f *rulesFile) follow(ctx context.Context) {
	defer close(f.done)
	f.settle = time.NewTimer(quiet)
	f.settle.Stop()
	var changes <-chan struct{}
	if f.follows {
		watch := filewatch.New(f.path, f.unwatched)
		defer watch.Close()
		changes = watch.Changes()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.hangup:
			f.hungUp()
		case <-changes:
			f.look()
		case <-f.settle.C:
			f.settled()
		}
	}
}

func (f *rulesFile) hungUp() {
	if !f.follows {
		f.log.Info("SIGHUP: there is no rules file to read again")
		return
	}
	f.asked = true
	f.look()
}

// look has the file judged, once it has been quiet, if it is not what was judged
// last.
func (f *rulesFile) look() {
	if !f.settling {
		f.seen, _ = takeSnapshot(f.path)
		if !f.asked && f.seen.equal(f.judged) {
			return
		}
	}
	f.settling = true
	f.settle.Reset(quiet)
}

// settled judges the file if it still is as it was last seen.
func (f *rulesFile) settled() {
	found, data := takeSnapshot(f.path)
	if !found.equal(f.seen) {
		f.seen = found
		f.settle.Reset(quiet)
		return
	}
	f.judge(found, data)
	f.settling, f.asked = false, false
}

// judge puts the rules in force that were found, if they are new and good.
func (f *rulesFile) judge(found snapshot, data []byte) {
	known := found.equal(f.judged)
	f.judged = found
	switch {
	case found.equal(f.inForce):
		f.reloads.refused.Store(false)
		level := slog.LevelDebug
		if f.asked || !known {
			level = slog.LevelInfo
		}
		f.log.Log(context.Background(), level, "the rules file holds the rules in force",
			"file", f.path, "generation", f.reloads.generation.Load())
	case known && !f.asked:
		f.log.Debug("the rules file is as broken as it was", "file", f.path)
	case found.err != nil:
		f.refuse(found.err)
	default:
		rules, err := events.ParseRules(data)
		if err != nil {
			f.refuse(err)
			return
		}
		f.inForce = found
		f.reloads.refused.Store(false)
		f.rules.Store(events.Succeed(f.rules.Load(), rules, f.now().Unix()))
		f.log.Info("rules reloaded", "file", f.path, "generation", f.reloads.generation.Add(1), "events", len(rules.Events))
	}
}

// refuse says why the rules in force stay.
func (f *rulesFile) refuse(err error) {
	const stay = "rules not reloaded, those in force stay"
	f.reloads.refused.Store(true)
	failures := f.reloads.failures.Add(1)
	generation := f.reloads.generation.Load()
	faults, ok := errors.AsType[events.Faults](err)
	if !ok {
		f.log.Error(stay, "file", f.path, "generation", generation, "failures", failures, "error", err)
		return
	}
	f.log.Error(stay, "file", f.path, "generation", generation, "failures", failures, "faults", len(faults))
	for _, fault := range faults[:min(len(faults), maxFaultsLogged)] {
		f.log.Error("fault in the rules file", "file", f.path, "line", fault.Line, "fault", fault.Error())
	}
	if len(faults) > maxFaultsLogged {
		f.log.Error("more faults in the rules file: counterd validate shows all", "file", f.path, "faults", len(faults)-maxFaultsLogged)
	}
}

// unwatched says why changes of the file may be seen late.
func (f *rulesFile) unwatched(err error) {
	f.log.Warn("the rules file cannot be watched: it is looked at now and then", "file", f.path, "every", filewatch.Glance, "error", err)
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
