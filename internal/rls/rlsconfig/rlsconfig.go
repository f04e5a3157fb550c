// Package rlsconfig reads the configuration files of envoyproxy/ratelimit, the reference
// implementation of Envoy's rate limit service, and finds the limit of a request's descriptor.
//
// It finds all faults of all files at once, each with its file, line and column, and warns of what
// is valid and has another effect than it seems.
package rlsconfig

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/counterd/counterd/events"
)

// File is the text of a configuration file: one domain.
type File struct {
	Name string // as faults name it
	Text []byte
}

// Config is the configuration of all domains. It is immutable, and safe for concurrent use.
type Config struct {
	Warnings events.Faults // of what is valid, and hardly meant
	domains  map[string]*domainConfig
	limits   []*Limit
	rules    *events.Rules
}

// domainConfig is the configuration of one domain.
type domainConfig struct {
	root  descriptor
	event *events.Event
}

// List returns the path of a file, or those of the *.yaml and *.yml files of a folder in the order of their names, and
// those of what else is in it. It leaves out what has a name that begins with a dot.
func List(path string) (names, others []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil, nil
	}
	entries, err := os.ReadDir(path) // sorted
	if err != nil {
		return nil, nil, err
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		name := filepath.Join(path, entry.Name())
		if extension := filepath.Ext(name); extension != ".yaml" && extension != ".yml" {
			others = append(others, name)
			continue
		}
		// Stat follows the symbolic links of which a mounted ConfigMap consists.
		if info, err := os.Stat(name); err != nil {
			return nil, nil, err
		} else if info.Mode().IsRegular() {
			names = append(names, name)
		} else {
			others = append(others, name)
		}
	}
	if len(names) == 0 {
		return nil, others, fmt.Errorf("%s has no *.yaml or *.yml file: add one, or name another folder", path)
	}
	return names, others, nil
}

// Parse reads files of at most 1 MiB. A domain has the descriptors of all files that name it. The
// error, if any, is events.Faults, with all faults there are; each names its file in its Path.
func Parse(files []File) (*Config, error) {
	c := &Config{domains: make(map[string]*domainConfig)}
	references := references{names: make(map[Entry]bool)}
	var readers []*reader
	for _, file := range files {
		r := &reader{file: file.Name, config: c, references: &references}
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
	c.addRules()
	return c, nil
}

// addRules makes the rules of the limits, for the events of their domains.
func (c *Config) addRules() {
	c.rules = &events.Rules{Events: make(map[string]*events.Event, len(c.domains))}
	of := make(map[string][]*Limit, len(c.domains))
	for _, limit := range c.limits {
		if !limit.Unlimited {
			of[limit.Domain] = append(of[limit.Domain], limit)
		}
	}
	for domain, d := range c.domains {
		d.event.Rules = make([]events.Rule, len(of[domain]))
		for i, limit := range of[domain] {
			d.event.Rules[i] = limit.rule()
			limit.Rule, limit.index = &d.event.Rules[i], i
		}
		c.rules.Events[d.event.Name] = d.event
	}
}

// Domains returns the names of the domains, sorted.
func (c *Config) Domains() []string { return slices.Sorted(maps.Keys(c.domains)) }

// Event returns the event that a domain is, with the rules of its limits, or nil: no file has that domain. Its name
// is "rls/" and the domain. A nil Config has no domains.
func (c *Config) Event(domain string) *events.Event {
	if c == nil || c.domains[domain] == nil {
		return nil
	}
	return c.domains[domain].event
}

// Rules returns the events of all domains.
func (c *Config) Rules() *events.Rules { return c.rules }
