// Package rlsconfig reads the configuration files of envoyproxy/ratelimit, the reference
// implementation of Envoy's rate limit service, and finds the limit of a request's descriptor.
//
// It finds all faults of all files at once, each with its file, line and column, and warns of what
// is valid and has another effect than it seems.
package rlsconfig

import (
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
)

// File is the text of a configuration file: one domain.
type File struct {
	Name string // as faults name it
	Text []byte
}

// Config is the configuration of all domains. It is immutable, and safe for concurrent use.
type Config struct {
	Warnings events.Faults // of what is valid, and hardly meant
	domains  map[string]*descriptor
	limits   []*Limit
}

// Read reads a file, or all *.yaml and *.yml files of a folder in the order of their names. It
// leaves out folders and files whose name begins with a dot. Faults are events.Faults, as Parse returns
// them; a file that cannot be read is another error.
func Read(path string, merge bool) (*Config, error) {
	names, err := list(path)
	if err != nil {
		return nil, fmt.Errorf("rlsconfig: reading the configuration: %w", err)
	}
	var files []File
	for _, name := range names {
		text, err := readFile(name)
		if err != nil {
			return nil, fmt.Errorf("rlsconfig: reading the configuration: %w", err)
		}
		files = append(files, File{name, text})
	}
	return Parse(files, merge)
}

// list returns the path of a file, or those of a folder's files.
func list(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path) // sorted
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		name := filepath.Join(path, entry.Name())
		extension := filepath.Ext(name)
		if strings.HasPrefix(entry.Name(), ".") || extension != ".yaml" && extension != ".yml" {
			continue
		}
		// Stat follows the symbolic links of which a mounted ConfigMap consists.
		if info, err := os.Stat(name); err != nil {
			return nil, err
		} else if info.Mode().IsRegular() {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s has no *.yaml or *.yml file: add one, or name another folder", path)
	}
	return names, nil
}

// readFile reads a file, of a longer one than MaxSize only so much that Parse sees that it is.
func readFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, rulesfile.MaxSize+1))
}

// Parse reads files of at most rulesfile.MaxSize bytes. If merge is true, files may have the same domain, which
// then has the descriptors of all of them. The error, if any, is events.Faults, with all faults
// there are; each names its file in its Path.
func Parse(files []File, merge bool) (*Config, error) {
	c := &Config{domains: make(map[string]*descriptor)}
	references := references{names: make(map[Entry]bool)}
	var readers []*reader
	for _, file := range files {
		r := &reader{file: file.Name, config: c, merge: merge, references: &references}
		r.read(file.Text)
		readers = append(readers, r)
	}
	references.check()
	var faults events.Faults
	for _, r := range readers {
		r.faults.Sort()
		r.warnings.Sort()
		faults, c.Warnings = append(faults, r.faults...), append(c.Warnings, r.warnings...)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	for _, limit := range c.limits {
		limit.Rule = limit.rule()
	}
	return c, nil
}

// Domains returns the names of the domains, sorted.
func (c *Config) Domains() []string { return slices.Sorted(maps.Keys(c.domains)) }

// HasDomain reports whether a file has that domain.
func (c *Config) HasDomain(domain string) bool { return c.domains[domain] != nil }

// All returns the limits in the order of the files.
func (c *Config) All() iter.Seq[*Limit] { return slices.Values(c.limits) }
