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
	"time"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/durationflag"
)

// texts is a flag that may be repeated.
type texts []string

func (t *texts) String() string { return strings.Join(*t, ",") }

// Set adds a value.
func (t *texts) Set(s string) error {
	*t = append(*t, s)
	return nil
}

// positive are the flags whose numbers and durations are above 0.
const positive = "batch c clients duration features memory population processes replicas requests rounds servers soak timeout trial"

// parse reads the flags.
func parse(set *flag.FlagSet, args []string) error {
	defer durationflag.Explain(set)()
	err := set.Parse(args)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return err
	}
	if _, name, unknown := strings.Cut(err.Error(), "not defined: -"); unknown {
		var known []string
		set.VisitAll(func(f *flag.Flag) { known = append(known, "-"+f.Name) })
		err = fmt.Errorf("%w%s", err, didYouMean("-"+name, known))
	}
	return err
}

// didYouMean ends a sentence about an unknown name.
func didYouMean(name string, known []string) string {
	if likely := events.Nearest(name, known); likely != "" {
		return fmt.Sprintf("; did you mean %q?", likely)
	}
	return ""
}

// given reports whether a flag was, whatever its value.
func given(set *flag.FlagSet, name string) (found bool) {
	set.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// refusal refuses flags, names with spaces between.
type refusal struct {
	here          bool
	names, reason string
}

// refused returns an error that names all flags that were given and are refused.
func refused(set *flag.FlagSet, list ...refusal) error {
	var found []string
	set.Visit(func(f *flag.Flag) {
		for _, r := range append(list, refusal{notPositive(f.Value), positive, "is above 0"}) {
			if r.here && slices.Contains(strings.Fields(r.names), f.Name) {
				found = append(found, "-"+f.Name+" "+r.reason)
			}
		}
	})
	if len(found) == 0 {
		return nil
	}
	return errors.New(strings.Join(found, "; "))
}

func notPositive(value flag.Value) bool {
	getter, is := value.(flag.Getter)
	if !is {
		return false
	}
	switch n := getter.Get().(type) {
	case int:
		return n <= 0
	case time.Duration:
		return n <= 0
	}
	return false
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
