// Command loadtest proves a counterd server, and measures it.
//
// loadtest replay reads an access log, has the server count it through HTTP, and
// compares what the server says with an exact log kept beside it. loadtest bench
// prints the figures of docs/performance.md. loadtest soak lets servers die under load, for
// long. See loadtest -h.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

const usage = `loadtest proves a counterd server, and measures it.

Usage:

  loadtest replay [flags] [FILE]   replay an access log, compare every count
  loadtest bench [flags]           measure, against what a plain program would do
  loadtest soak [flags]            run for long while servers die, hold it against an oracle

loadtest replay -h, loadtest bench -h and loadtest soak -h explain them. Exit status: 0 all is right, 1 something is not,
2 wrong usage.
`

func main() {
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

// run returns the exit status.
func run(ctx context.Context, args []string, std streams) int {
	if len(args) == 0 {
		std.complain("a command is wanted: replay, bench or soak; loadtest -h explains it")
		return exitUsage
	}
	switch args[0] {
	case "replay":
		return runReplay(ctx, args[1:], std)
	case "bench":
		return runBench(ctx, args[1:], std)
	case "soak":
		return runSoak(ctx, args[1:], std)
	case doNothing:
		return runNothing(ctx, args[1:], std)
	case "-h", "-help", "--help", "help":
		fmt.Fprint(std.out, usage)
		return exitOK
	}
	std.complain("there is no command %q: replay, bench and soak are; loadtest -h explains it", args[0])
	return exitUsage
}

// result is what a command has to say in the end.
type result interface {
	WriteText(io.Writer) error
}

// writeResult writes a result as text, or as JSON.
func writeResult(out io.Writer, r result, asJSON bool) error {
	if !asJSON {
		return r.WriteText(out)
	}
	if err := json.MarshalWrite(out, r, jsontext.WithIndent("  ")); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out)
	return err
}
