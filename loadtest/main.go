// Command loadtest proves a counterd server, and measures it.
//
// See loadtest -h, and docs/loadtest.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Exit statuses.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // as shells have it: 128 and the number of SIGINT
)

// command is what a user calls by its name.
type command struct {
	name, arguments, summary string
	run                      func(ctx context.Context, args []string, std streams) int
}

// commands are in the order in which a new user needs them.
func commands() []command {
	return []command{
		{"run", "[flags]", "put load on a server, and say what became of it", runRun},
		{"verify", "[flags]", "hold every answer against an exact log, also while servers die", runVerify},
		{"replay", "[flags] [FILE ...]", "replay a log: compare every count, try rules, suggest limits", runReplay},
		{"compare", "[flags] [FILE ...]", "hold the ways of limiting against an exact log", runCompare},
		{"plan", "[flags] [FILE ...]", "say what rules and traffic need: items, memory, servers", runPlan},
		{"bench", "[flags]", "measure, against what a plain program would do", runBench},
	}
}

func usage() string {
	var list strings.Builder
	for _, c := range commands() {
		fmt.Fprintf(&list, "  loadtest %-27s %s\n", c.name+" "+c.arguments, c.summary)
	}
	return fmt.Sprintf(`loadtest proves a counterd server, and measures it.

Usage:

%s
loadtest COMMAND -h explains a command, with examples. Exit status: 0 all is right,
1 something is not, 2 wrong usage, 130 it was interrupted, and until then nothing was
wrong. Ctrl-C or SIGTERM interrupts: what is known by then is said. A second one ends
at once.
`, &list)
}

func main() {
	// There net/http writes what a server says that refuses a connection. It fails, too, the
	// next call on it, and that is counted.
	stdlog.SetOutput(io.Discard)
	os.Exit(untilInterrupted(os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}))
}

// untilInterrupted runs a command, and returns its exit status. The first signal ends the
// command's context: it says what it knows by then. The second one ends this process at
// once, whatever still goes on, and the system ends what it has started.
func untilInterrupted(args []string, std streams) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	told := make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(told)
		stop()
		if isTerminal(std.err) {
			fmt.Fprintln(std.err) // below the bar
		}
		std.complain("ending; another interrupt ends it at once")
	})
	status := run(ctx, args, std)
	if !unwatch() {
		<-told
	}
	stop()
	return status
}

// streams are the standard ones.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// complain writes one line on standard error.
func (s streams) complain(format string, args ...any) {
	fmt.Fprintf(s.err, "loadtest: "+format+"\n", args...)
}

// failed says why there is nothing more to say, and returns the exit status. An interrupt
// is reason enough, unless something else went wrong.
func (s streams) failed(ctx context.Context, err error) int {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return s.ended(ctx, true)
	}
	s.complain("%v", err)
	return exitFailed
}

// ended returns the exit status of a command that has said what it found, also where it was
// interrupted before it was done.
func (s streams) ended(ctx context.Context, right bool) int {
	if ctx.Err() != nil {
		s.complain("interrupted")
	}
	switch {
	case !right:
		return exitFailed
	case ctx.Err() != nil:
		return exitInterrupted
	}
	return exitOK
}

// result writes what a command has found, unless it failed, and returns the exit status.
func (s streams) result(ctx context.Context, found result, asJSON bool, err error, right bool) int {
	if err == nil {
		err = writeResult(s.out, found, asJSON)
	}
	if err != nil {
		return s.failed(ctx, err)
	}
	return s.ended(ctx, right)
}

// run returns the exit status.
func run(ctx context.Context, args []string, std streams) int {
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
		if len(args) > 0 && args[0] == c.name {
			return c.run(ctx, args[1:], std)
		}
	}
	known := strings.Join(names, ", ")
	switch {
	case len(args) == 0:
		std.complain("a command is wanted: %s; loadtest -h explains it", known)
		return exitUsage
	case args[0] == doNothing:
		return runNothing(ctx, args[1:], std)
	case slices.Contains([]string{"-h", "-help", "--help", "help"}, args[0]):
		fmt.Fprint(std.out, usage())
		return exitOK
	}
	std.complain("there is no command %q: %s; loadtest -h explains it", args[0], known)
	return exitUsage
}

// result is what a command has to say in the end.
type result interface {
	WriteText(io.Writer) error
}

// writeResult writes a result as text, or as JSON with durations in seconds.
func writeResult(out io.Writer, r result, asJSON bool) error {
	if !asJSON {
		return r.WriteText(out)
	}
	inSeconds := json.MarshalToFunc(func(to *jsontext.Encoder, d time.Duration) error {
		return to.WriteToken(jsontext.Float(d.Seconds()))
	})
	if err := json.MarshalWrite(out, r, jsontext.WithIndent("  "), json.WithMarshalers(inSeconds)); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out)
	return err
}
