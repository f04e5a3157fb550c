// Command counterd is a distributed rate limiter and event counter with exact sliding windows,
// over HTTP.
//
// This package is flags, environment and signals over package server. See counterd -h.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	_ "time/tzdata" // calendars need it, where the machine has no time zones

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/settings"
)

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// command is what counterd does with arguments.
type command func(ctx context.Context, args []string, stdout, stderr io.Writer) error

// commands returns what counterd does besides serving.
func commands() map[string]command {
	return map[string]command{
		"keys": keys, "probe": probe, "ratelimit": ratelimit, "validate": validate, "version": version,
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the default is back: a second one ends at once.
	context.AfterFunc(ctx, stop)
	stderr := newLogWriter(os.Stderr)
	status := run(ctx, os.Args[1:], os.Stdout, stderr)
	stderr.flush(flushTimeout)
	os.Exit(status)
}

// run is the command without the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "help" {
		args = append(args[1:len(args):len(args)], "-h")
	}
	called, rest := command(serve), args
	if len(args) > 0 {
		name := args[0]
		// Not a flag among the others: flags come from the environment, too, where deployments use COUNTERD_VERSION for a
		// version of their own.
		if name == "-version" || name == "--version" {
			name = "version"
		}
		if found, ok := commands()[name]; ok {
			called, rest = found, args[1:]
		}
	}
	err := called(ctx, rest, stdout, stderr)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.Is(err, errUsage):
		fmt.Fprintf(stderr, "counterd: %v (counterd -h shows how)\n", err)
		return exitUsage
	}
	text := oneLine(err)
	// The faults of a rules file have a line each.
	if _, ok := errors.AsType[events.Faults](err); ok {
		text = settings.Spell(err, settings.FlagName)
	}
	fmt.Fprintf(stderr, "counterd: %s\n", text)
	return exitFailed
}

// version prints what the binary was built from.
func version(_ context.Context, args []string, stdout, _ io.Writer) error {
	if len(args) > 0 {
		return usageError(fmt.Sprintf("unknown argument %q", args[0]))
	}
	text := "(unknown version)"
	if build, ok := debug.ReadBuildInfo(); ok {
		text = describe(build)
	}
	_, err := fmt.Fprintln(stdout, "counterd", text)
	return err
}

// describe returns the version of a build, its commit and date where Go has stamped them, and what it is built for.
func describe(build *debug.BuildInfo) string {
	of := map[string]string{}
	for _, setting := range build.Settings {
		of[setting.Key] = setting.Value
	}
	commit := ""
	if of["vcs.revision"] != "" {
		commit = " (commit " + of["vcs.revision"] + ", " + of["vcs.time"] + ")"
		if of["vcs.modified"] == "true" {
			commit = strings.TrimSuffix(commit, ")") + ", modified)"
		}
	}
	return cmp.Or(build.Main.Version, "(devel)") + commit + " " + build.GoVersion + " " + of["GOOS"] + "/" + of["GOARCH"]
}
