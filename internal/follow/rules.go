package follow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/filewatch"
)

// RulesFile is a rules file as it was read: where it is and which version it was. The zero
// RulesFile is no file.
type RulesFile struct {
	path  string // absolute
	found []snapshot
}

// ReadRules reads a rules file, and says which version of it that was.
func ReadRules(path string) (*events.Rules, RulesFile, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, RulesFile{}, err
	}
	found, data := takeSnapshot(absolute)
	if found.err != nil {
		rules, err := events.ReadRules(path)
		return rules, RulesFile{path: absolute}, err
	}
	rules, err := events.ParseRules(data)
	if err != nil {
		return nil, RulesFile{}, fmt.Errorf("%s:\n%w", path, err)
	}
	return rules, RulesFile{absolute, []snapshot{found}}, nil
}

// Rules are the rules in force. They may follow a rules file: a broken version of it leaves
// the rules in force as they are.
type Rules struct {
	*watcher
	file       string // absolute; empty: there is no file
	log        *slog.Logger
	now        func() time.Time
	rules      atomic.Pointer[events.Rules]
	replacing  sync.Mutex
	generation atomic.Int64 // of the rules in force; the first is 1
	failures   atomic.Int64
	refused    atomic.Bool
	inForce    []snapshot // what the rules in force came from; of the goroutine that follows
}

// NewRules puts the first rules in force, and follows their file, if any, until Close.
func NewRules(first *events.Rules, file RulesFile, log *slog.Logger) *Rules {
	r := newRules(first, file, log)
	if r.Follows() {
		r.start()
	}
	return r
}

func newRules(first *events.Rules, file RulesFile, log *slog.Logger) *Rules {
	r := &Rules{watcher: newWatcher(), file: file.path, log: log, now: time.Now, inForce: file.found}
	r.judge, r.unwatched = r.judgeFile, r.logUnwatched
	switch {
	case len(file.found) > 0:
		r.paths, r.judged = []string{file.path}, file.found
	case file.path != "":
		log.Info("the rules are not in a regular file: they are read once", "file", file.path)
	}
	r.warn(first)
	r.rules.Store(first)
	r.generation.Store(1)
	return r
}

// Rules returns the rules in force. They do not change: a caller that uses one result works
// with one version.
func (r *Rules) Rules() *events.Rules { return r.rules.Load() }

// Generation returns the number of the rules in force; the first have 1.
func (r *Rules) Generation() int64 { return r.generation.Load() }

// Failures returns how many versions of the rules file were refused.
func (r *Rules) Failures() int64 { return r.failures.Load() }

// Refused reports whether the rules file holds a version that was refused.
func (r *Rules) Refused() bool { return r.refused.Load() }

// Longest returns the longest retention of all counters.
func (r *Rules) Longest() (longest time.Duration) {
	for _, event := range r.Rules().All() {
		longest = max(longest, event.Remembered())
	}
	return longest
}

// Set puts other rules in force and returns their generation.
func (r *Rules) Set(rules *events.Rules) int64 {
	r.replacing.Lock()
	defer r.replacing.Unlock()
	r.rules.Store(events.Succeed(r.rules.Load(), rules, r.now().Unix()))
	return r.generation.Add(1)
}

// Ask has the rules file read again, and an answer logged. It does not wait.
func (r *Rules) Ask() {
	if !r.Follows() {
		r.log.Info("there is no rules file to read again")
		return
	}
	r.watcher.Ask()
}

// judgeFile puts rules in force that are new and good.
func (r *Rules) judgeFile(found []snapshot, contents [][]byte, known bool) {
	switch {
	case equal(found, r.inForce):
		r.refused.Store(false)
		level := slog.LevelDebug
		if r.asked || !known {
			level = slog.LevelInfo
		}
		r.log.Log(context.Background(), level, "the rules file holds the rules in force", "file", r.file, "generation", r.Generation())
	case known && !r.asked:
		r.log.Debug("the rules file is as broken as it was", "file", r.file)
	case found[0].err != nil:
		r.refuse(found[0].err)
	default:
		rules, err := events.ParseRules(contents[0])
		if err != nil {
			r.refuse(err)
			return
		}
		r.inForce = found
		r.refused.Store(false)
		r.log.Info("rules reloaded", "file", r.file, "generation", r.Set(rules), "events", len(rules.Events))
		r.warn(rules)
	}
}

// warn logs what is valid in the rules and probably a mistake.
func (r *Rules) warn(rules *events.Rules) {
	for _, warning := range rules.Warnings[:min(len(rules.Warnings), maxFaultsLogged)] {
		r.log.Warn("warning of the rules file", "file", r.file, "line", warning.Line, "warning", warning.Error())
	}
	if len(rules.Warnings) > maxFaultsLogged {
		r.log.Warn("more warnings of the rules file: counterd validate shows all", "file", r.file, "warnings", len(rules.Warnings)-maxFaultsLogged)
	}
}

// refuse logs why the rules in force stay.
func (r *Rules) refuse(err error) {
	const stay = "rules not reloaded, those in force stay"
	r.refused.Store(true)
	failures := r.failures.Add(1)
	faults, ok := errors.AsType[events.Faults](err)
	if !ok {
		r.log.Error(stay, "file", r.file, "generation", r.Generation(), "failures", failures, "error", err)
		return
	}
	r.log.Error(stay, "file", r.file, "generation", r.Generation(), "failures", failures, "faults", len(faults))
	for _, fault := range faults[:min(len(faults), maxFaultsLogged)] {
		r.log.Error("fault in the rules file", "file", r.file, "line", fault.Line, "fault", fault.Error())
	}
	if len(faults) > maxFaultsLogged {
		r.log.Error("more faults in the rules file: counterd validate shows all", "file", r.file, "faults", len(faults)-maxFaultsLogged)
	}
}

func (r *Rules) logUnwatched(err error) {
	r.log.Warn("the rules file cannot be watched: it is read now and then instead", "file", r.file, "every", filewatch.Glance, "error", err)
}
