package follow

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
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
		rules, err := rulesfile.Read(path)
		return rules, RulesFile{path: absolute}, err
	}
	rules, err := rulesfile.Parse(data)
	if err != nil {
		return nil, RulesFile{}, fmt.Errorf("%s:\n%w", path, err)
	}
	rules.Modified(found.modified)
	return rules, RulesFile{absolute, []snapshot{found}}, nil
}

// Rules are the rules in force. They may follow a rules file: a broken version of it leaves
// the rules in force as they are. It is safe for concurrent use.
type Rules struct {
	*Files
	now        func() time.Time
	suits      func(*events.Rules) error
	rules      atomic.Pointer[events.Rules]
	replacing  sync.Mutex
	generation atomic.Int64 // of the rules in force; the first is 1
	file       string       // absolute; empty: there is none
}

// NewRules puts the first rules in force, and follows their file, if any, until Close. A version of
// the file for which suits returns an error is refused.
func NewRules(first *events.Rules, file RulesFile, suits func(*events.Rules) error, log *slog.Logger) *Rules {
	r := newRules(first, file, log)
	r.suits = suits
	if r.Follows() {
		r.start()
	}
	return r
}

func newRules(first *events.Rules, file RulesFile, log *slog.Logger) *Rules {
	var paths []string
	switch {
	case len(file.found) > 0:
		paths = []string{file.path}
	case file.path != "":
		log.Info("the rules are not in a regular file: they are read once", "file", file.path)
	}
	r := &Rules{now: time.Now, file: file.path, suits: func(*events.Rules) error { return nil }}
	r.Files = newFiles("rules", paths, r.take, log)
	r.inForce, r.judged = file.found, file.found
	r.state = func() []any { return []any{"generation", r.Generation()} }
	warn(r.log, "rules", ": counterd validate shows all", first.Warnings)
	r.rules.Store(first)
	r.generation.Store(1)
	return r
}

// Rules returns the rules in force. They do not change: a caller that uses one result works
// with one version.
func (r *Rules) Rules() *events.Rules { return r.rules.Load() }

// Generation returns the number of the rules in force; the first have 1.
func (r *Rules) Generation() int64 { return r.generation.Load() }

// File returns where the rules file is; empty: there is none.
func (r *Rules) File() string { return r.file }

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
	r.Files.Ask()
}

// take puts the rules of the file in force.
func (r *Rules) take(files []File) ([]any, error) {
	rules, err := rulesfile.Parse(files[0].Data)
	if err != nil {
		return nil, err
	}
	rules.Modified(r.modified)
	if err := r.suits(rules); err != nil {
		return nil, err
	}
	warn(r.log, "rules", ": counterd validate shows all", rules.Warnings)
	return []any{"generation", r.Set(rules), "events", len(rules.Events)}, nil
}

// warn logs what is valid in a file and probably a mistake. The hint names a command that shows all warnings.
func warn(log *slog.Logger, what, hint string, warnings events.Faults) {
	for _, warning := range warnings[:min(len(warnings), maxFaultsLogged)] {
		log.Warn("warning of the "+what+" file", "line", warning.Line, "warning", warning.Error())
	}
	if len(warnings) > maxFaultsLogged {
		log.Warn("more warnings of the "+what+" file"+hint, "warnings", len(warnings)-maxFaultsLogged)
	}
}
