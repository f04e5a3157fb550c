package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/counterd/counterd/api/client"
)

// newFlags returns a command's empty set, which says nothing by itself.
func newFlags(command string) *flag.FlagSet {
	set := flag.NewFlagSet(command, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	return set
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

// advised adds to what a server at -url has answered, or has not, which flag may help.
func advised(err error) error {
	_, answered := errors.AsType[*client.Error](err)
	switch {
	case errors.Is(err, client.ErrUnknown):
		return fmt.Errorf("%w; -event names one that the server has", err)
	case errors.Is(err, client.ErrUnavailable) && !answered:
		return fmt.Errorf("%w; -url says where the server is", err)
	}
	return err
}
