package follow

import (
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/internal/assembly"
	"github.com/counterd/counterd/internal/settings"
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
	*assembly.RulesInForce
	suits func(*events.Rules) error
	file  string // absolute; empty: there is none
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
	r := &Rules{RulesInForce: assembly.NewRules(first), file: file.path, suits: func(*events.Rules) error { return nil }}
	r.Files = newFiles("rules", paths, r.take, log)
	r.inForce, r.judged = file.found, file.found
	r.state = func() []any { return []any{"generation", r.Generation()} }
	settings.LogWarnings(r.log, "rules", "counterd validate", first.Warnings)
	return r
}

// File returns where the rules file is; empty: there is none.
func (r *Rules) File() string { return r.file }

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
	settings.LogWarnings(r.log, "rules", "counterd validate", rules.Warnings)
	return []any{"generation", r.Set(rules), "events", len(rules.Events)}, nil
}
