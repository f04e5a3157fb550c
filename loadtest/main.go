// Command loadtest proves a counterd server, and measures it.
//
// See loadtest -h, and docs/loadtest.md.
package main

import (
	"context"
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
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// command is what a user calls by its name.
type command struct {
	name, arguments, summary string
	run                      func(ctx context.Context, args []string, std streams) int
}

// commands are in the order in which somebody new needs them.
func commands() []command {
	return []command{
		{"run", "[flags]", "put load on a server, and say what became of it", runRun},
		{"verify", "[flags]", "hold every answer against an exact log, also while servers die", runVerify},
		{"replay", "[flags] [FILE ...]", "replay a log: compare every count, try rules, suggest limits", runReplay},
		{"compare", "[flags] [FILE ...]", "hold the ways of limiting against an exact log", runCompare},
		{"plan", "[flags] [FILE ...]", "say what rules and traffic need: items, memory, servers", runPlan},
		{"bench", "[flags]", "measure, against what a plain program would do", runBench},
		{"soak", "[flags]", "run for long while servers die, hold it against an oracle", runSoak},
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
1 something is not, 2 wrong usage.
`, &list)
}

func main() {
	// There net/http writes what a server says that refuses a connection. It fails, too, the
	// next call on it, and that is counted.
	stdlog.SetOutput(io.Discard)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends at once, whatever still goes on.
	context.AfterFunc(ctx, stop)
	status := run(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr})
	stop()
	os.Exit(status)
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

// failed says what went wrong, and returns the exit status.
func (s streams) failed(ctx context.Context, err error) int {
	if ctx.Err() != nil {
		s.complain("interrupted")
	} else {
		s.complain("%v", err)
	}
	return exitFailed
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
