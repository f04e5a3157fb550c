package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/counterd/counterd/internal/durationflag"
)

// newFlags returns a command's empty set, which says nothing by itself.
func newFlags(command string) *flag.FlagSet {
	set := flag.NewFlagSet(command, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	return set
}

// parseFlags reads the arguments of a command.
func parseFlags(set *flag.FlagSet, args []string) error {
	defer durationflag.Explain(set)()
	return set.Parse(args)
}

// defaultsOf returns the flags as a help text lists them.
func defaultsOf(set *flag.FlagSet) string {
	var defaults strings.Builder
	set.SetOutput(&defaults)
	set.PrintDefaults()
	return defaults.String()
}

// refused says what is wrong with the arguments of a command, or, if that was asked for,
// its help, and returns the exit status.
func (s streams) refused(set *flag.FlagSet, help func() string, err error) int {
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(s.out, help())
		return exitOK
	}
	s.complain("%s: %s; loadtest %s -h explains it", set.Name(), strings.ReplaceAll(err.Error(), "\n", "; "), set.Name())
	return exitUsage
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

// idleFlags returns an error if one of the flags, names with spaces between, was given.
func idleFlags(set *flag.FlagSet, reason, names string) error {
	var idle []string
	set.Visit(func(f *flag.Flag) {
		if slices.Contains(strings.Fields(names), f.Name) {
			idle = append(idle, "-"+f.Name+" "+reason)
		}
	})
	if len(idle) == 0 {
		return nil
	}
	return errors.New(strings.Join(idle, "; "))
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
