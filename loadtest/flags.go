package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// texts is a flag that may be repeated.
type texts []string

func (t *texts) String() string { return strings.Join(*t, ",") }

// Set adds a value.
func (t *texts) Set(s string) error {
	*t = append(*t, s)
	return nil
}

// given reports whether a flag was, whatever its value.
func given(set *flag.FlagSet, name string) (found bool) {
	set.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// noArguments is an error where there are some behind the flags.
func noArguments(set *flag.FlagSet) error {
	if set.NArg() > 0 {
		return fmt.Errorf("no argument is taken, not %q", set.Arg(0))
	}
	return nil
}

// besideThis returns the program of that name beside this one, where make build puts it.
func besideThis(name string) (string, error) {
	self, err := os.Executable()
	return filepath.Join(filepath.Dir(self), name), err
}

// programsThere adds to an error that says that a program is not where it is looked for how
// counterd gets there.
func programsThere(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: make build makes bin/loadtest and bin/counterd beside it, go run makes loadtest alone; -counterd names one elsewhere", err)
	}
	return err
}

// idle are flags, names with spaces between, that mean nothing in some cases.
type idle struct {
	here          bool
	names, reason string
}

// idleFlags returns an error that names all flags that were given and mean nothing.
func idleFlags(set *flag.FlagSet, list ...idle) error {
	var found []string
	set.Visit(func(f *flag.Flag) {
		for _, one := range list {
			if one.here && slices.Contains(strings.Fields(one.names), f.Name) {
				found = append(found, "-"+f.Name+" "+one.reason)
			}
		}
	})
	if len(found) == 0 {
		return nil
	}
	return errors.New(strings.Join(found, "; "))
}

// rule is a rule that arguments may break.
type rule struct {
	broken bool
	text   string
}

// firstBroken returns the first broken rule as an error.
func firstBroken(rules ...rule) error {
	for _, r := range rules {
		if r.broken {
			return errors.New(r.text)
		}
	}
	return nil
}
