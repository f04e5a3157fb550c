package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/filewatch"
)

// maxFaultsLogged bounds the lines in the log for the faults, or warnings, of one file.
const maxFaultsLogged = 1000

// rulesFile holds the rules in force, and follows the file that they come from. A
// broken edit leaves those in force where they are.
type rulesFile struct {
	*restingFiles
	path    string // absolute; empty: there is no file
	log     *slog.Logger
	now     func() time.Time
	rules   atomic.Pointer[events.Rules]
	reloads reloads
	inForce []snapshot // what the rules in force came from; of the goroutine that follows
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
	f := newRulesFile(log)
	f.catch()
	if err := f.open(path); err != nil {
		f.uncatch()
		return nil, err
	}
	f.start()
	return f, nil
}

func newRulesFile(log *slog.Logger) *rulesFile {
	f := &rulesFile{restingFiles: newRestingFiles(), log: log, now: time.Now}
	f.judge, f.unwatched = f.judgeFile, f.saysUnwatched
	f.nothing = func() { log.Info("SIGHUP: there is no rules file to read again") }
	return f
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
		found, data := takeSnapshot(f.path)
		if !errors.Is(found.err, filewatch.ErrNotRegular) { // else it cannot be read twice
			f.paths, f.inForce = []string{f.path}, []snapshot{found}
		}
		if rules, err = f.first(path, data, found.err); err != nil {
			return err
		}
		if !f.follows() {
			f.log.Info("the rules are not in a regular file: they are read once", "file", path)
		}
	}
	f.judged = f.inForce
	f.warn(rules)
	f.rules.Store(rules)
	f.reloads.generation.Store(1)
	return nil
}

// first reads the first rules.
func (f *rulesFile) first(path string, data []byte, fault error) (*events.Rules, error) {
	if fault != nil {
		return events.ReadRules(path)
	}
	rules, err := events.ParseRules(data)
	if err != nil {
		return nil, fmt.Errorf("%s:\n%w", path, err)
	}
	return rules, nil
}

// judgeFile puts the rules in force that were found, if they are new and good.
func (f *rulesFile) judgeFile(found []snapshot, contents [][]byte, known bool) {
	switch {
	case equal(found, f.inForce):
		f.reloads.refused.Store(false)
		level := slog.LevelDebug
		if f.asked || !known {
			level = slog.LevelInfo
		}
		f.log.Log(context.Background(), level, "the rules file holds the rules in force",
			"file", f.path, "generation", f.reloads.generation.Load())
	case known && !f.asked:
		f.log.Debug("the rules file is as broken as it was", "file", f.path)
	case found[0].err != nil:
		f.refuse(found[0].err)
	default:
		rules, err := events.ParseRules(contents[0])
		if err != nil {
			f.refuse(err)
			return
		}
		f.inForce = found
		f.reloads.refused.Store(false)
		f.rules.Store(events.Succeed(f.rules.Load(), rules, f.now().Unix()))
		f.log.Info("rules reloaded", "file", f.path, "generation", f.reloads.generation.Add(1), "events", len(rules.Events))
		f.warn(rules)
	}
}

// warn logs what is valid in the file and hardly meant.
func (f *rulesFile) warn(rules *events.Rules) {
	for _, warning := range rules.Warnings[:min(len(rules.Warnings), maxFaultsLogged)] {
		f.log.Warn("warning of the rules file", "file", f.path, "line", warning.Line, "warning", warning.Error())
	}
	if len(rules.Warnings) > maxFaultsLogged {
		f.log.Warn("more warnings of the rules file: counterd validate shows all", "file", f.path, "warnings", len(rules.Warnings)-maxFaultsLogged)
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

// saysUnwatched says why changes of the file may be seen late.
func (f *rulesFile) saysUnwatched(err error) {
	f.log.Warn("the rules file cannot be watched: it is looked at now and then", "file", f.path, "every", filewatch.Glance, "error", err)
}
