package follow

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/rls/rlsconfig"
	"github.com/counterd/counterd/internal/settings"
)

// RLSConfig is the configuration of envoyproxy/ratelimit in force. It follows its file, or folder: a faulty version of
// any file leaves the configuration in force as it is. It is safe for concurrent use.
type RLSConfig struct {
	*Files
	log        *slog.Logger
	config     atomic.Pointer[rlsconfig.Config]
	generation atomic.Int64
	others     []string // in the folder, which are not read
}

// OpenRLSConfig reads a file, or the files of a folder, and follows them until Close.
func OpenRLSConfig(path string, log *slog.Logger) (*RLSConfig, error) {
	r := &RLSConfig{log: log}
	var err error
	if r.Files, err = OpenFolder("rls-config", path, r.list, r.take, log); err != nil {
		return nil, err
	}
	return r, nil
}

// Ask has the files read again, and an answer logged. It does not wait. On a nil RLSConfig it does nothing, as Close does.
func (r *RLSConfig) Ask() {
	if r != nil {
		r.Files.Ask()
	}
}

// Close ends the following. The configuration in force stays.
func (r *RLSConfig) Close() {
	if r != nil {
		r.Files.Close()
	}
}

// Config returns the configuration in force. It does not change; of a nil RLSConfig it is nil.
func (r *RLSConfig) Config() *rlsconfig.Config {
	if r == nil {
		return nil
	}
	return r.config.Load()
}

// Rules returns the rules of the configuration in force; of a nil RLSConfig there are none.
func (r *RLSConfig) Rules() *events.Rules {
	if r == nil {
		return noRules
	}
	return r.config.Load().Rules()
}

var noRules = &events.Rules{}

// list returns the files that are read. It logs what else there is in a folder, once.
func (r *RLSConfig) list(path string) ([]string, error) {
	names, others, err := rlsconfig.List(path)
	if !slices.Equal(others, r.others) && len(others) > 0 {
		r.log.Warn("not read, since only *.yaml and *.yml files of the folder itself are", "names", others)
	}
	r.others = others
	return names, err
}

// take puts the configuration of the files in force. It logs the warnings that the one before did not have.
func (r *RLSConfig) take(files []File) ([]any, error) {
	texts := make([]rlsconfig.File, len(files))
	for i, file := range files {
		texts[i] = rlsconfig.File{Name: file.Path, Text: file.Data}
	}
	config, err := rlsconfig.Parse(texts)
	if err != nil {
		return nil, err
	}
	warnings := config.Warnings
	if before := r.config.Load(); before != nil {
		config.Succeed(before, time.Now())
		warnings = slices.DeleteFunc(slices.Clone(warnings), func(w events.Fault) bool { return slices.Contains(before.Warnings, w) })
	}
	r.config.Store(config)
	settings.LogWarnings(r.log, "rls-config", "", warnings)
	return []any{"generation", r.generation.Add(1), "domains", len(config.Domains())}, nil
}
